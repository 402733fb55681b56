-- What all verbs of a queue share: it stands in front of each of them. Python's `model.py` says the same in lists.
--
-- KEYS 1-12 are those of the queue, 13-24 those of its dead letters, if it has any. ARGV[1] is the time in ms, or 0 for
-- the server's own. All keys of a queue are in one hash slot and all are declared, so a slot that moves stays whole.
--
--   cfg  hash   settings and counters              held     hash  id -> how often delivered, to whom, until when
--   msg  hash   id -> the message                  subs     hash  subscriber -> until when, whose, its patterns
--   ready zset  lane NUL order id, by text         casts    hash  id -> who of a broadcast has acknowledged
--   active zset lane -> order of its first         expiry   zset  id -> when its TTL ends, ms
--   delayed zset id -> when it is due, ms          groups   hash  lane of a fifo queue -> id in flight
--   leased zset id -> when its lease ends, ms      why      hash  id of a dead letter -> what became of it, JSON
--
-- An id is ten hex digits; a copy of a broadcast is `id@subscriber`. A lane is a topic, or a group in a fifo queue, or
-- \1 and a subscriber for its copies. In a fifo queue a delayed message stands in its lane too, and holds up the lane.
local CFG, MSG, READY, ACTIVE, DELAYED, LEASED, HELD, SUBS, CASTS, EXPIRY, GROUPS, WHY = unpack(KEYS, 1, 12)
local HEADER = '>ddI4I4HhBHc0Hc0' -- expires, due, visibility, ack timeout, retries, priority, copies?, lane, topic
local STATE = '>Hdddd' -- deliveries, number of the last one, since when, until when at most, order; then the holder
local SETTLE_MAX = 128
local RANK = 1099511627776 -- 2^40 numbers a priority

local floor, format = math.floor, string.format
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
end
local settings = redis.call('HMGET', CFG, 'type', 'max_size', 'seq', 'deliveries', 'prefix', 'dedup')
local PREFIX = settings[5]
local TYPE = settings[1]
local fifo = TYPE == 'fifo'
local dirty, counts = {}, {}

local function count(name, by)
  counts[name] = (counts[name] or 0) + (by or 1)
end

local function base_of(id)
  return #id == 10 and id or id:sub(1, 10)
end

local function lane_of(id, lane)
  return #id == 10 and lane or '\1' .. id:sub(12)
end

local function order_of(id, due, priority)
  if TYPE == 'priority' then
    return (4096 - priority) * RANK + tonumber(base_of(id), 16)
  elseif TYPE == 'delay' then
    return due
  end
  return tonumber(base_of(id), 16)
end

local function member_of(lane, order, id)
  return lane .. '\0' .. format('%014x', order) .. id
end

local function read_member(lane, member)
  return tonumber(member:sub(#lane + 2, #lane + 15), 16), member:sub(#lane + 16)
end

local function first_of(lane, limit)
  return redis.call('ZRANGEBYLEX', READY, '[' .. lane .. '\0', '(' .. lane .. '\1', 'LIMIT', 0, limit)
end

local function push(id, lane, order)
  redis.call('ZADD', READY, 0, member_of(lane, order, id))
  dirty[lane] = true
end

-- Whether the lane has a message to give, and its order.
local function open_head(lane)
  if fifo and redis.call('HEXISTS', GROUPS, lane) == 1 then
    return nil
  end
  local head = first_of(lane, 1)[1]
  if not head then
    return nil
  end
  local order, id = read_member(lane, head)
  if fifo and redis.call('ZSCORE', DELAYED, id) then
    return nil
  end
  return order
end

-- To be called in the end: what changed in lanes, in counters, and that there is something to take.
local function close(quiet)
  local woke = false
  for lane in pairs(dirty) do
    local order = open_head(lane)
    woke = woke or order ~= nil
    if lane:byte(1) ~= 1 then
      if order then
        redis.call('ZADD', ACTIVE, order, lane)
      else
        redis.call('ZREM', ACTIVE, lane)
      end
    end
  end
  for name, by in pairs(counts) do
    redis.call('HINCRBY', CFG, name, by)
  end
  dirty, counts = {}, {}
  if woke and not quiet then
    redis.call('PUBLISH', CFG:sub(1, -4) .. 'events', 'ready')
  end
end

-- One more has acknowledged its copy of a broadcast (or failed to): whether that was the last one.
local function tally(id, field)
  local base = base_of(id)
  local packed = redis.call('HGET', CASTS, base)
  if not packed then
    return true
  end
  local cast = cmsgpack.unpack(packed)
  local before = #cast.acknowledged
  table.insert(cast[field], id:sub(12))
  local last = #cast.acknowledged + #cast.failed == #cast.subscribers
  if last then
    redis.call('HDEL', CASTS, base)
  else
    redis.call('HSET', CASTS, base, cmsgpack.pack(cast))
  end
  local reached = before < cast.required and #cast.acknowledged >= cast.required
  if reached or last then
    redis.call('PUBLISH', CFG:sub(1, -4) .. 'events',
      'c' .. cmsgpack.pack({base, cast.subscribers, cast.acknowledged, cast.failed, cast.required}))
  end
  return last
end

-- The end of a message, or of one copy of it: nothing of it remains but in a counter.
local function finish(id, counter, field)
  redis.call('HDEL', HELD, id)
  redis.call('ZREM', EXPIRY, id)
  redis.call('HDEL', WHY, id)
  if #id == 10 then
    redis.call('HDEL', MSG, id)
  elseif tally(id, field) then
    redis.call('HDEL', MSG, base_of(id))
  end
  count(counter)
end

local function bury(id, body, deliveries, reason, by)
  if KEYS[13] and redis.call('EXISTS', KEYS[13]) == 1 then
    local _, _, visibility, ack, _, priority, _, lane, topic, rest = struct.unpack(HEADER, body)
    local ttl_ms = tonumber(redis.call('HGET', KEYS[13], 'ttl_ms'))
    local number = redis.call('HINCRBY', KEYS[13], 'seq', 1)
    local dead = format('%010x', number)
    local expires = ttl_ms > 0 and now + ttl_ms or 0
    local kept = struct.pack(HEADER, expires, now, visibility, ack, 65535, priority, 0, #topic, topic, #topic, topic)
    redis.call('HSET', KEYS[14], dead, kept .. body:sub(rest))
    redis.call('ZADD', KEYS[15], 0, member_of(topic, (4096 - priority) * RANK + number, dead))
    redis.call('ZADD', KEYS[16], 'LT', (4096 - priority) * RANK + number, topic)
    if expires > 0 then
      redis.call('ZADD', KEYS[22], expires, dead)
    end
    redis.call('HSET', KEYS[24], dead, cjson.encode({
      message_id = PREFIX .. base_of(id), reason = reason, at = now / 1000,
      deliveries = deliveries, by = by, subscriber = #id > 10 and id:sub(12) or nil, group = fifo and lane or nil,
    }))
    redis.call('HINCRBY', KEYS[13], 'sent', 1)
    redis.call('HINCRBY', KEYS[13], 'units', 1)
    redis.call('PUBLISH', KEYS[13]:sub(1, -4) .. 'events', 'ready')
  end
end

-- A lease has ended without an acknowledgement: the message waits again, is a dead letter (verb d), or its time is over.
-- With verb l, nobody has seen it: the delivery does not count. Returns what became of it: r(etry), d(ead), e(xpired).
local function give_back(id, delay_ms, reason, verb)
  local state = redis.call('HGET', HELD, id)
  local deliveries, _, _, _, order, at = struct.unpack(STATE, state)
  local by = state:sub(at)
  local body = redis.call('HGET', MSG, base_of(id))
  local expires, _, _, _, retries, priority, _, lane = struct.unpack(HEADER, body)
  lane = lane_of(id, lane)
  redis.call('ZREM', LEASED, id)
  if fifo then
    redis.call('HDEL', GROUPS, lane)
    dirty[lane] = true
  end
  if verb == 'l' then
    deliveries = deliveries - 1
  end
  if verb ~= 'd' and expires > 0 and expires <= now then
    finish(id, 'expired', 'failed')
    return 'e'
  elseif verb == 'd' or deliveries > retries then
    bury(id, body, deliveries, reason, by)
    finish(id, 'failed', 'failed')
    return 'd'
  end
  local due = now + delay_ms
  if TYPE == 'delay' then
    order = due
  end
  redis.call('HSET', HELD, id, struct.pack(STATE, deliveries, 0, 0, 0, order) .. by)
  if delay_ms > 0 then
    redis.call('ZADD', DELAYED, due, id)
  end
  if fifo or delay_ms == 0 then
    push(id, lane, order)
  end
  if expires > 0 then
    redis.call('ZADD', EXPIRY, expires, id)
  end
  count('requeued')
  return 'r'
end

-- What time has changed. Each kind up to a limit, so that no script takes long; the rest is for the next one.
local function settle()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', LEASED, '-inf', now, 'LIMIT', 0, SETTLE_MAX)) do
    give_back(id, 0, 'the lease ran out', 'r')
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', EXPIRY, '-inf', now, 'LIMIT', 0, SETTLE_MAX)) do
    redis.call('ZREM', EXPIRY, id)
    if not redis.call('ZSCORE', LEASED, id) then -- else its lease's end decides
      local _, due, _, _, _, priority, _, lane = struct.unpack(HEADER, redis.call('HGET', MSG, base_of(id)))
      lane = lane_of(id, lane)
      local state = redis.call('HGET', HELD, id)
      local order = state and select(5, struct.unpack(STATE, state)) or order_of(id, due, priority)
      redis.call('ZREM', READY, member_of(lane, order, id))
      redis.call('ZREM', DELAYED, id)
      dirty[lane] = true
      finish(id, 'expired', 'failed')
    end
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', DELAYED, '-inf', now, 'LIMIT', 0, SETTLE_MAX)) do
    redis.call('ZREM', DELAYED, id)
    local _, due, _, _, _, priority, _, lane = struct.unpack(HEADER, redis.call('HGET', MSG, base_of(id)))
    lane = lane_of(id, lane)
    if fifo then
      dirty[lane] = true
    else
      local state = redis.call('HGET', HELD, id)
      push(id, lane, state and select(5, struct.unpack(STATE, state)) or order_of(id, due, priority))
    end
  end
end

-- When time will change something next, in ms; 0 if nothing waits for it.
local function next_at()
  local soonest = 0
  for _, key in ipairs({LEASED, DELAYED, EXPIRY}) do
    local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
    first = first and tonumber(first)
    if first and (soonest == 0 or first < soonest) then
      soonest = first
    end
  end
  return soonest
end

local function size()
  local waiting = redis.call('ZCARD', READY) + redis.call('ZCARD', LEASED)
  return fifo and waiting or waiting + redis.call('ZCARD', DELAYED)
end

local function split(text)
  local levels = {}
  for level in text:gmatch('[^.]+') do
    levels[#levels + 1] = level
  end
  return levels
end

-- `*` is one level, `#` any number of them. Linear but for the last `#`, which is all that ever has to be tried again.
local function matches(pattern, topic)
  local p, t, again_p, again_t = 1, 1, nil, nil
  while t <= #topic do
    if pattern[p] == '#' then
      again_p, again_t = p, t
      p = p + 1
    elseif pattern[p] == topic[t] or pattern[p] == '*' then
      p, t = p + 1, t + 1
    elseif again_p then
      again_t = again_t + 1
      p, t = again_p + 1, again_t
    else
      return false
    end
  end
  while pattern[p] == '#' do
    p = p + 1
  end
  return p > #pattern
end

local function any_match(patterns, topic)
  local levels = split(topic)
  for _, pattern in ipairs(patterns) do
    if matches(pattern, levels) then
      return true
    end
  end
  return false
end

-- The names of those who subscribe to this topic now, in order.
local subscribers
local function subscribed_to(topic)
  if not subscribers then
    subscribers = {}
    local all = redis.call('HGETALL', SUBS)
    for n = 1, #all, 2 do
      local subscriber = cmsgpack.unpack(all[n + 1])
      if subscriber.until_ms > now then
        local patterns = {}
        for k, pattern in ipairs(subscriber.patterns) do
          patterns[k] = split(pattern)
        end
        subscribers[#subscribers + 1] = {all[n], patterns}
      end
    end
    table.sort(subscribers, function(one, other) return one[1] < other[1] end)
  end
  local found = {}
  for _, subscriber in ipairs(subscribers) do
    if any_match(subscriber[2], topic) then
      found[#found + 1] = subscriber[1]
    end
  end
  return found
end
