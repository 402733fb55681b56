-- Dead letters go back to their queue, topic by topic, as far as there is room.
-- ARGV: time, how many at most. Returns {how many went, how many are left}, or -1 if there is no such queue.
if not TYPE or not KEYS[13] then
  return -1
end
settle()
local D = {}
for n = 1, 12 do
  D[n] = KEYS[12 + n]
end
local moved, over, room = 0, 0, math.min(tonumber(ARGV[2]), tonumber(settings[4]) - counts[HERE])
local defaults = redis.call('HMGET', CFG, 'retries', 'ttl_ms')
if room > 0 then
  for _, dead in ipairs(redis.call('ZRANGE', D[3], 0, room - 1)) do
    local topic, old = dead:sub(1, -30), dead:sub(-14, -5)
    local body, why = redis.call('HGET', D[2], old), redis.call('HGET', D[12], old)
    local told = why and cjson.decode(why) or {}
    local is_over, _, sent, visibility, ack, _, priority, _, _, rest, at = struct.unpack(HEADER, body)
    if is_over > 0 and is_over <= now then
      over = over + 1
    else
      count(SEQ, 1)
      moved = moved + 1
      local id = id_of(counts[SEQ])
      local ttl = tonumber(defaults[2])
      local expires = ttl > 0 and now + ttl or 0
      local lane = told.subscriber and '\1' .. told.subscriber or fifo and (told.group or '') or topic
      local header = struct.pack(HEADER, expires, now, sent, visibility, ack, tonumber(defaults[1]), priority, #lane, lane,
        #topic, topic, #rest, rest)
      redis.call('HSET', MSG, id, header .. body:sub(at))
      push(id, lane, order_of(id, now, priority), 1)
      if expires > 0 then
        redis.call('ZADD', EXPIRY, expires, id)
        expect(expires)
      end
    end
    redis.call('ZREM', D[3], dead)
    redis.call('HDEL', D[2], old)
    redis.call('HDEL', D[12], old)
    redis.call('HDEL', D[7], old)
    redis.call('ZREM', D[10], old)
    local head = redis.call('ZRANGEBYLEX', D[3], '[' .. topic .. '\0', '(' .. topic .. '\1', 'LIMIT', 0, 1)[1]
    if head then
      redis.call('ZADD', D[4], (read_member(topic, head)), topic)
    else
      redis.call('ZREM', D[4], topic)
    end
  end
  if moved + over > 0 then
    seldom().count_dead(REDRIVEN, moved)
    seldom().count_dead(EXPIRED, over)
    seldom().count_dead(HERE, -moved - over)
  end
  count(UNITS, moved)
  count(HERE, moved)
  count(REDRIVEN, moved)
end
finally()
return {moved, redis.call('ZCARD', D[3])}
