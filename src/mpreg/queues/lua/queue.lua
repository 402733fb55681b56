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
--
-- Messages that were sent together and differ in nothing but their payloads are one parcel, with the id of its first
-- message; the others' ids are the numbers that follow. A parcel waits, is handed out and expires as one; it is cut when
-- somebody has room for a part of it, and `loosen` makes single messages of it when its messages begin to differ in more
-- than which of them are acknowledged. A single message is a parcel of one. In fifo queues and broadcasts all are single.
local CFG, MSG, READY, ACTIVE, DELAYED, LEASED, HELD, SUBS, CASTS, EXPIRY, GROUPS, WHY = unpack(KEYS, 1, 12)
local HEADER = '>dddI4I4HhHc0Hc0I4c0' -- expires, due, sent at, visibility, ack timeout, retries, priority, lane, topic,
-- and what nobody reads here; then `>H` how many payloads, `>I4` how long each is, and these
local STATE = '>HHdddd' -- deliveries, how many messages, number of the first one's last delivery, since when, until when
-- at most, order of the first; then for each 1 or 0 (acknowledged); then the holder
local SINGLE = struct.pack(STATE, 0, 1, 0, 0, 0, 0)
-- The counters, in their order in the field `counts` of cfg, and in Python's COUNTERS.
local SEQ, DELIVERIES, HERE, LEASES, DELAYS, SOONEST, SENT, UNITS, RECEIVED, ACKNOWLEDGED, FAILED, EXPIRED, REQUEUED, PURGED,
  REDRIVEN, FIRED, PROCESSING_MS = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17
local PACKED = '>ddddddddddddddddd'
local SETTLE_MAX = 128
local RANK = 1099511627776 -- 2^40 numbers a priority

local floor, format = math.floor, string.format
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
end

local function read_counts(packed)
  local found = {struct.unpack(PACKED, packed or ('\0'):rep(8 * PROCESSING_MS))}
  found[#found] = nil -- where `unpack` has come to
  return found
end

local function write_counts(key, counts)
  redis.call('HSET', key, 'counts', struct.pack(PACKED, unpack(counts)))
end

local settings = redis.call('HMGET', CFG, 'counts', 'type', 'prefix', 'max_size', 'dedup')
local TYPE, PREFIX = settings[2], settings[3]
local fifo = TYPE == 'fifo'
local counts, changed = read_counts(settings[1]), false
local dead_counts -- of the dead letters, once one comes or goes
local dirty = {}
local sooner = false -- whether something waits for a moment of which those who take messages may not know

local function count(which, by)
  counts[which] = counts[which] + by
  changed = true
end

-- Time will change something then: SOONEST is no later than the first of these moments; 0 if there is none.
local function expect(at)
  if counts[SOONEST] == 0 or at < counts[SOONEST] then
    counts[SOONEST] = at
    changed = true
  end
end

-- It waits until then, and who takes messages has to know it.
local function delay(id, due, many)
  counts[DELAYS] = counts[DELAYS] + many
  sooner = true
  expect(due)
  return redis.call('ZADD', DELAYED, due, id)
end

local function base_of(id)
  return #id == 10 and id or id:sub(1, 10)
end

-- The id within the queue of one that came from outside; of another queue of this name, before it was deleted, none.
local function own_id(whole)
  return whole:sub(1, #PREFIX) == PREFIX and whole:sub(#PREFIX + 1) or ''
end

local function number_of(id)
  return tonumber(base_of(id), 16)
end

local function id_of(number)
  return format('%010x', number)
end

local function lane_of(id, lane)
  return #id == 10 and lane or '\1' .. id:sub(12)
end

local function order_of(id, due, priority)
  if TYPE == 'priority' then
    return (4096 - priority) * RANK + number_of(id)
  elseif TYPE == 'delay' then
    return due
  end
  return number_of(id)
end

local function member_of(lane, order, id, many)
  return lane .. '\0' .. format('%014x', order) .. id .. format('%04x', many)
end

-- Order, id, how many.
local function read_member(lane, member)
  return tonumber(member:sub(#lane + 2, #lane + 15), 16), member:sub(#lane + 16, -5), tonumber(member:sub(-4), 16)
end

local function first_of(lane)
  return redis.call('ZRANGEBYLEX', READY, '[' .. lane .. '\0', '(' .. lane .. '\1', 'LIMIT', 0, 1)[1]
end

local function push(id, lane, order, many)
  redis.call('ZADD', READY, 0, member_of(lane, order, id, many))
  dirty[lane] = true
end

-- One call with many arguments is several with as many as fit on Lua's stack.
local function write(command, key, flat)
  for n = 1, #flat, 4000 do
    redis.call(command, key, unpack(flat, n, math.min(n + 3999, #flat)))
  end
end

-- Whether the lane has a message to give, and its order.
local function open_head(lane)
  if fifo and redis.call('HEXISTS', GROUPS, lane) == 1 then
    return nil
  end
  local head = first_of(lane)
  if not head then
    return nil
  end
  local order, id = read_member(lane, head)
  if fifo and redis.call('ZSCORE', DELAYED, id) then
    return nil
  end
  return order
end

-- What changed in lanes, and that there is something to take.
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
  dirty = {}
  if (woke or sooner) and not quiet then
    sooner = false
    redis.call('PUBLISH', CFG:sub(1, -4) .. 'events', 'ready')
  end
end

-- To be called in the end: as `close`, and counters are kept.
local function finally(quiet)
  close(quiet)
  if changed then
    write_counts(CFG, counts)
  end
  if dead_counts then
    write_counts(KEYS[13], dead_counts)
  end
end

-- What few scripts need is made when it is needed first: a function takes time to make, too.
local seldom_made
local function seldom()
  if seldom_made then
    return seldom_made
  end

  -- A body as its header, how many it holds, and a function for the payloads from one to another, as they stand in a body.
  local function open(body)
    local at = select(11, struct.unpack(HEADER, body))
    local many = struct.unpack('>H', body, at)
    local lengths = {struct.unpack('>' .. ('I4'):rep(many), body, at + 2)}
    local ends = {[0] = lengths[many + 1] - 1}
    for n = 1, many do
      ends[n] = ends[n - 1] + lengths[n]
    end
    return body:sub(1, at - 1), many, function(first, last)
      local lengths_at = at + 2 + 4 * (first - 1)
      return struct.pack('>H', last - first + 1) .. body:sub(lengths_at, lengths_at + 4 * (last - first + 1) - 1) ..
        body:sub(ends[first - 1] + 1, ends[last])
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

  -- The end of a message, of one copy of it, or of a whole parcel: nothing of it remains but in counters.
  local function finish(id, counter, field, many)
    redis.call('HDEL', HELD, id)
    redis.call('ZREM', EXPIRY, id)
    redis.call('HDEL', WHY, id)
    if #id == 10 then
      redis.call('HDEL', MSG, id)
    elseif tally(id, field) then
      redis.call('HDEL', MSG, base_of(id))
    end
    count(counter, many or 1)
    count(HERE, -(many or 1))
  end

  local function count_dead(which, by)
    dead_counts = dead_counts or read_counts(redis.call('HGET', KEYS[13], 'counts'))
    dead_counts[which] = dead_counts[which] + by
  end

  local function bury(id, body, deliveries, reason, by)
    if KEYS[13] and redis.call('EXISTS', KEYS[13]) == 1 then
      local _, _, sent, visibility, ack, _, priority, lane, topic, rest, at = struct.unpack(HEADER, body)
      local ttl_ms = tonumber(redis.call('HGET', KEYS[13], 'ttl_ms'))
      for _, which in ipairs({SEQ, SENT, UNITS, HERE}) do
        count_dead(which, 1)
      end
      local dead = id_of(dead_counts[SEQ])
      local expires = ttl_ms > 0 and now + ttl_ms or 0
      local header = struct.pack(HEADER, expires, now, sent, visibility, ack, 65535, priority, #topic, topic, #topic, topic,
        #rest, rest)
      redis.call('HSET', KEYS[14], dead, header .. body:sub(at))
      redis.call('ZADD', KEYS[15], 0, member_of(topic, (4096 - priority) * RANK + dead_counts[SEQ], dead, 1))
      redis.call('ZADD', KEYS[16], 'LT', (4096 - priority) * RANK + dead_counts[SEQ], topic)
      if expires > 0 then
        redis.call('ZADD', KEYS[22], expires, dead)
        if dead_counts[SOONEST] == 0 or expires < dead_counts[SOONEST] then
          dead_counts[SOONEST] = expires
        end
      end
      redis.call('HSET', KEYS[24], dead, cjson.encode({
        message_id = PREFIX .. base_of(id), reason = reason, at = now / 1000,
        deliveries = deliveries, by = by, subscriber = #id > 10 and id:sub(12) or nil, group = fifo and lane or nil,
      }))
      redis.call('PUBLISH', KEYS[13]:sub(1, -4) .. 'events', 'ready')
    end
  end

  -- A parcel in someone's hands is from now on looked at message by message. Returns the ids that are still there.
  local function loosen(id)
    local state = redis.call('HGET', HELD, id)
    local deliveries, many, number, since, limit, order, at = struct.unpack(STATE, state)
    if many == 1 then
      return {id}
    end
    local pending, holder = state:sub(at, at + many - 1), state:sub(at + many)
    local ends = redis.call('ZSCORE', LEASED, id)
    local header, _, payloads = open(redis.call('HGET', MSG, id))
    local first = number_of(id)
    local ids, bodies, leases, holders = {}, {}, {}, {}
    for n = 1, many do
      if pending:byte(n) == 49 then
        local each = id_of(first + n - 1)
        ids[#ids + 1] = each
        bodies[#bodies + 1], bodies[#bodies + 2] = each, header .. payloads(n, n)
        leases[#leases + 1], leases[#leases + 2] = ends, each
        local own = struct.pack(STATE, deliveries, 1, number + n - 1, since, limit, TYPE == 'delay' and order or order + n - 1)
        holders[#holders + 1], holders[#holders + 2] = each, own .. '1' .. holder
      end
    end
    redis.call('HDEL', MSG, id)
    redis.call('HDEL', HELD, id)
    redis.call('ZREM', LEASED, id)
    redis.call('ZREM', EXPIRY, id)
    write('HSET', MSG, bodies)
    write('ZADD', LEASED, leases)
    write('HSET', HELD, holders)
    return ids
  end

  -- A lease of a single message has ended without an acknowledgement: it waits again, is a dead letter (verb d), or its
  -- time is over. With verb l, nobody has seen it: the delivery does not count. Returns what became of it: r(etry),
  -- d(ead), e(xpired).
  local function give_back(id, delay_ms, reason, verb)
    local state = redis.call('HGET', HELD, id)
    local deliveries, _, _, _, _, order, at = struct.unpack(STATE, state)
    local by = state:sub(at + 1)
    local body = redis.call('HGET', MSG, base_of(id))
    local expires, _, _, _, _, retries, _, lane = struct.unpack(HEADER, body)
    lane = lane_of(id, lane)
    redis.call('ZREM', LEASED, id)
    count(LEASES, -1)
    if fifo then
      redis.call('HDEL', GROUPS, lane)
      dirty[lane] = true
    end
    if verb == 'l' then
      deliveries = deliveries - 1
    end
    if verb ~= 'd' and expires > 0 and expires <= now then
      finish(id, EXPIRED, 'failed')
      return 'e'
    elseif verb == 'd' or deliveries > retries then
      bury(id, body, deliveries, reason, by)
      finish(id, FAILED, 'failed')
      return 'd'
    end
    local due = now + delay_ms
    if TYPE == 'delay' then
      order = due
    end
    redis.call('HSET', HELD, id, struct.pack(STATE, deliveries, 1, 0, 0, 0, order) .. '1' .. by)
    if delay_ms > 0 then
      delay(id, due, 1)
    end
    if fifo or delay_ms == 0 then
      push(id, lane, order, 1)
    end
    if expires > 0 then
      redis.call('ZADD', EXPIRY, expires, id)
      expect(expires)
    end
    count(REQUEUED, 1)
    return 'r'
  end

  -- Where something stands that waits: lane, order, how many.
  local function place_of(id)
    local body = redis.call('HGET', MSG, base_of(id))
    local _, due, _, _, _, _, priority, lane, _, _, at = struct.unpack(HEADER, body)
    local state = redis.call('HGET', HELD, id)
    local order = state and select(6, struct.unpack(STATE, state)) or order_of(id, due, priority)
    return lane_of(id, lane), order, #id == 10 and struct.unpack('>H', body, at) or 1
  end

  -- What time has changed. Each kind up to a limit, so that no script takes long; the rest is for the next one.
  local function let_time_pass()
    local left = SETTLE_MAX
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', LEASED, '-inf', now, 'LIMIT', 0, SETTLE_MAX)) do
      for _, each in ipairs(loosen(id)) do
        give_back(each, 0, 'the lease ran out', 'r')
        left = left - 1
      end
      if left <= 0 then
        break
      end
    end
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', EXPIRY, '-inf', now, 'LIMIT', 0, SETTLE_MAX)) do
      redis.call('ZREM', EXPIRY, id)
      if not redis.call('ZSCORE', LEASED, id) then -- else its lease's end decides
        local lane, order, many = place_of(id)
        redis.call('ZREM', READY, member_of(lane, order, id, many))
        if redis.call('ZREM', DELAYED, id) == 1 then
          count(DELAYS, -many)
        end
        dirty[lane] = true
        finish(id, EXPIRED, 'failed', many)
      end
    end
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', DELAYED, '-inf', now, 'LIMIT', 0, SETTLE_MAX)) do
      redis.call('ZREM', DELAYED, id)
      local lane, order, many = place_of(id)
      count(DELAYS, -many)
      if fifo then
        dirty[lane] = true
      else
        push(id, lane, order, many)
      end
    end
    counts[SOONEST] = 0
    changed = true
    for _, key in ipairs({LEASED, DELAYED, EXPIRY}) do
      local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
      if first then
        expect(tonumber(first))
      end
    end
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

  seldom_made = {
    open = open, finish = finish, loosen = loosen, give_back = give_back, let_time_pass = let_time_pass,
    count_dead = count_dead, split = split, any_match = any_match, subscribed_to = subscribed_to,
  }
  return seldom_made
end

local function settle()
  if counts[SOONEST] > 0 and counts[SOONEST] <= now then
    seldom().let_time_pass()
  end
end
