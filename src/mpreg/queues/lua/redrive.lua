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
local moved, room = 0, math.min(tonumber(ARGV[2]), tonumber(settings[2]) - size())
local number = tonumber(settings[3] or 0)
local defaults = redis.call('HMGET', CFG, 'retries', 'ttl_ms')
if room > 0 then
  for _, dead in ipairs(redis.call('ZRANGE', D[3], 0, room - 1)) do
    local topic, old = dead:sub(1, -26), dead:sub(-10)
    local body, why = redis.call('HGET', D[2], old), redis.call('HGET', D[12], old)
    local told = why and cjson.decode(why) or {}
    number, moved = number + 1, moved + 1
    local id = format('%010x', number)
    local _, _, visibility, ack, _, priority, _, _, _, rest = struct.unpack(HEADER, body)
    local ttl = tonumber(defaults[2])
    local expires = ttl > 0 and now + ttl or 0
    local lane = told.subscriber and '\1' .. told.subscriber or fifo and (told.group or '') or topic
    redis.call('HSET', MSG, id, struct.pack(HEADER, expires, now, visibility, ack, tonumber(defaults[1]), priority, 0,
      #lane, lane, #topic, topic) .. body:sub(rest))
    push(id, lane, order_of(id, now, priority))
    if expires > 0 then
      redis.call('ZADD', EXPIRY, expires, id)
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
  redis.call('HSET', CFG, 'seq', number)
  redis.call('HINCRBY', D[1], 'redriven', moved)
  count('units', moved)
  count('redriven', moved)
end
close()
return {moved, redis.call('ZCARD', D[3])}
