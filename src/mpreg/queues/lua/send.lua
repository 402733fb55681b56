-- Takes messages in. Each is answered for itself; one that is refused leaves nothing behind.
-- KEYS from 25 (or 13 without dead letters): deduplication keys   ARGV: time, place of the first of them, whether the
-- caller took the queue for one that deduplicates, then pairs:
--   guarantee (0 at least once, 1 broadcast, 2 quorum), priority, delay, TTL (-1: the queue's, 0: none), visibility and
--   ack timeout (0: the queue's), retries (-1: the queue's), required, which deduplication key (0: none), group, topic
--   and the rest of the message, which is nobody's business here
-- Returns {now, prefix of ids, answer…}: the id, a list of id and subscribers, `D` and the id of the first one, `F` full, `Q` and how
-- many there are who could acknowledge; or -1 if there is no such queue, -2 if the caller was wrong about deduplication.
if not TYPE then
  return -1
end
if ARGV[3] ~= settings[6] then
  return -2
end
settle()
local defaults = redis.call('HMGET', CFG, 'visibility_ms', 'ack_ms', 'retries', 'ttl_ms', 'window_ms')
local max_size, number, taken = tonumber(settings[2]), tonumber(settings[3] or 0), size()
local first_key = tonumber(ARGV[2])
local bodies, ready, expiring, delayed, answers = {}, {}, {}, {}, {now, PREFIX}

for n = 4, #ARGV, 2 do
  local guarantee, priority, delay, ttl, visibility, ack, retries, required, dedup, group, topic =
    struct.unpack('>BhddddhHHHc0Hc0', ARGV[n])
  local key = dedup > 0 and KEYS[first_key + dedup - 1]
  local first = key and redis.call('GET', key)
  if first and first:sub(1, -11) ~= PREFIX then
    first = false -- of a queue of this name that was deleted
  end
  local copies = guarantee > 0 and subscribed_to(topic)
  local units = copies and #copies or 1
  required = (guarantee == 2 and required == 0) and floor(units / 2) + 1 or required
  if first then
    answers[#answers + 1] = 'D' .. first:sub(-10)
  elseif guarantee == 2 and required > units then
    answers[#answers + 1] = 'Q' .. units
  elseif taken + units > max_size then
    answers[#answers + 1] = 'F'
  else
    number, taken = number + 1, taken + units
    local id = format('%010x', number)
    visibility = visibility > 0 and visibility or tonumber(defaults[1])
    ack = ack > 0 and ack or tonumber(defaults[2])
    retries = retries >= 0 and retries or tonumber(defaults[3])
    ttl = ttl >= 0 and ttl or tonumber(defaults[4])
    local expires, due = ttl > 0 and now + ttl or 0, now + delay
    if copies and (expires == 0 or expires > due + ack) then
      expires = due + ack -- a subscriber that is gone holds up a broadcast no longer than this
    end
    local lane = fifo and group or topic
    if units > 0 then
      bodies[#bodies + 1] = id
      bodies[#bodies + 1] = struct.pack(HEADER, expires, due, visibility, ack, retries, priority,
        copies and 1 or 0, #lane, lane, #topic, topic) .. ARGV[n + 1]
      for k = 1, units do
        local each = copies and id .. '@' .. copies[k] or id
        local place = lane_of(each, lane)
        if expires > 0 then
          expiring[#expiring + 1], expiring[#expiring + 2] = expires, each
        end
        if delay > 0 then
          delayed[#delayed + 1], delayed[#delayed + 2] = due, each
        end
        if fifo or delay == 0 then
          ready[#ready + 1], ready[#ready + 2] = 0, member_of(place, order_of(each, due, priority), each)
          dirty[place] = true
        end
      end
    end
    if copies then
      if units > 0 then
        redis.call('HSET', CASTS, id, cmsgpack.pack({
          guarantee = guarantee, required = required, subscribers = copies, acknowledged = {}, failed = {},
        }))
      end
      answers[#answers + 1] = {id, unpack(copies)}
    else
      answers[#answers + 1] = id
    end
    if key then
      redis.call('SET', key, PREFIX .. id, 'PX', defaults[5])
    end
    count('sent')
    count('units', units)
  end
end

local function write(command, key, flat)
  for n = 1, #flat, 4000 do
    redis.call(command, key, unpack(flat, n, math.min(n + 3999, #flat)))
  end
end
write('HSET', MSG, bodies)
write('ZADD', READY, ready)
write('ZADD', EXPIRY, expiring)
write('ZADD', DELAYED, delayed)
redis.call('HSET', CFG, 'seq', number)
close()
return answers
