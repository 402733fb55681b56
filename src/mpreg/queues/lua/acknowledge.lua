-- Ends leases: each message is done, waits again, or becomes a dead letter, as its holder says.
-- ARGV: time, then for messages of one delivery: prefix and id of the first that was in it, number of its delivery, holder, verb (a, r,
-- d, or l: give it back as if it had never been delivered), delay of a retry in ms, reason, and which of them (`>H` each,
-- the first is 0). Returns {now, for each of these, one letter a message: a(cknowledged), r(etry), d(ead letter), e(xpired)
-- or s(tale: nothing was changed)}, or -1 if there is no such queue.
if not TYPE then
  return -1
end
settle()
local PAGE = 500 -- as many arguments fit on Lua's stack
local WORDS = 7

local done, over = {}, {} -- ids that are done with as a whole, and the same as a set
local states, ends = {}, {} -- what was read ahead and has not changed since
for first = 2, #ARGV, WORDS * PAGE do
  local ids = {}
  for n = first, math.min(first + WORDS * PAGE - 1, #ARGV), WORDS do
    ids[#ids + 1] = own_id(ARGV[n])
  end
  local found, scores = redis.call('HMGET', HELD, unpack(ids)), redis.call('ZMSCORE', LEASED, unpack(ids))
  for n, id in ipairs(ids) do
    states[id], ends[id] = found[n], scores[n]
  end
end

local function state_of(id)
  if over[id] then
    return false
  elseif states[id] == nil then
    states[id] = redis.call('HGET', HELD, id)
  end
  return states[id]
end

local function end_of(id)
  if ends[id] == nil then
    ends[id] = redis.call('ZSCORE', LEASED, id)
  end
  return ends[id] and tonumber(ends[id])
end

local function changed_now(id)
  states[id], ends[id] = nil, nil
end

-- Whole parcels that are done: what `finish` does for each, in a few calls for all.
local function done_with(ids)
  if fifo then
    for n, body in ipairs(redis.call('HMGET', MSG, unpack(ids))) do
      local lane = lane_of(ids[n], (select(8, struct.unpack(HEADER, body))))
      redis.call('HDEL', GROUPS, lane)
      dirty[lane] = true
    end
  end
  redis.call('ZREM', LEASED, unpack(ids))
  redis.call('HDEL', HELD, unpack(ids))
  redis.call('HDEL', MSG, unpack(ids))
  for _, key in ipairs({EXPIRY, WHY}) do
    if redis.call('EXISTS', key) == 1 then
      redis.call(key == WHY and 'HDEL' or 'ZREM', key, unpack(ids))
    end
  end
end

local function counted(many, from)
  count(ACKNOWLEDGED, many)
  count(LEASES, -many)
  count(HERE, -many)
  count(PROCESSING_MS, many * (now - from))
end

-- A message that is held by itself.
local function single(id, state, number, holder, verb, delay_ms, reason)
  local until_ms = state and end_of(id)
  if not until_ms or until_ms <= now then
    return 's'
  end
  local _, many, delivery, from, _, _, at = struct.unpack(STATE, state)
  if many > 1 or delivery ~= number or state:sub(at + 1) ~= holder then
    return 's'
  end
  changed_now(id)
  if verb ~= 'a' then
    return seldom().give_back(id, delay_ms, reason, verb)
  elseif #id == 10 then
    done[#done + 1], over[id] = id, true
    counted(1, from)
  else
    redis.call('ZREM', LEASED, id)
    count(LEASES, -1)
    if fifo then
      local lane = lane_of(id)
      redis.call('HDEL', GROUPS, lane)
      dirty[lane] = true
    end
    seldom().finish(id, ACKNOWLEDGED, 'acknowledged')
    count(PROCESSING_MS, now - from)
  end
  return 'a'
end

-- Some messages of a parcel are done.
local function some_of(id, state, places)
  local _, many, _, from, _, _, at = struct.unpack(STATE, state)
  local pending, answers, acknowledged = {state:byte(at, at + many - 1)}, {}, 0
  for n, place in ipairs(places) do
    local is_there = pending[place + 1] == 49
    if is_there then
      pending[place + 1], acknowledged = 48, acknowledged + 1
    end
    answers[n] = is_there and 'a' or 's'
  end
  local left = string.char(unpack(pending))
  counted(acknowledged, from)
  if left:find('1', 1, true) then
    changed_now(id)
    redis.call('HSET', HELD, id, state:sub(1, at - 1) .. left .. state:sub(at + many))
  else
    done[#done + 1], over[id] = id, true
  end
  return table.concat(answers)
end

local function answer_to(id, number, holder, verb, delay_ms, reason, some)
  local state, places = state_of(id), {struct.unpack('>' .. ('H'):rep(#some / 2), some)}
  places[#places] = nil -- where `unpack` has come to
  local _, many, delivery, _, _, _, at = struct.unpack(STATE, state or SINGLE)
  if many > 1 then
    if end_of(id) <= now or delivery ~= number or state:sub(at + many) ~= holder then
      return ('s'):rep(#places)
    elseif verb == 'a' then
      return some_of(id, state, places)
    end
    seldom().loosen(id)
    changed_now(id)
    state = state_of(id)
  end
  local answers = {}
  for n, place in ipairs(places) do
    local each = (place == 0 or id == '') and id or id_of(number_of(id) + place)
    answers[n] = single(each, place == 0 and state or state_of(each), number + place, holder, verb, delay_ms, reason)
    state = false -- it may have changed
  end
  return table.concat(answers)
end

local answers = {now}
for n = 2, #ARGV, WORDS do
  answers[#answers + 1] = answer_to(own_id(ARGV[n]), tonumber(ARGV[n + 1]), ARGV[n + 2], ARGV[n + 3], tonumber(ARGV[n + 4]),
    ARGV[n + 5], ARGV[n + 6])
end
for first = 1, #done, PAGE do
  done_with({unpack(done, first, math.min(first + PAGE - 1, #done))})
end
finally()
return answers
