-- Lets leases end later (or sooner).
-- ARGV: time, then for messages of one delivery: id of the first that was in it, number of its delivery, holder, how long from
-- now in ms, and which of them (`>H` each, the first is 0). Returns {now, for each of these, a list of when each message's
-- lease ends, 0 if it is not the holder's (any more)}, or -1 if there is no such queue.
if not TYPE then
  return -1
end
settle()

-- A lease of a parcel, or of a single message.
local function extended(id, state, number, holder, by_ms)
  local ends = state and redis.call('ZSCORE', LEASED, id)
  if not ends or tonumber(ends) <= now then
    return 0
  end
  local _, many, delivery, _, limit, _, at = struct.unpack(STATE, state)
  if delivery ~= number or state:sub(at + many) ~= holder or limit <= now then
    return 0
  end
  local later = math.min(limit, now + by_ms)
  redis.call('ZADD', LEASED, later, id)
  expect(later)
  return later
end

-- Whether they are all that are left of a parcel.
local function are_all(state, places)
  local _, many, _, _, _, _, at = struct.unpack(STATE, state)
  local pending, asked = state:sub(at, at + many - 1), {}
  for _, place in ipairs(places) do
    if pending:byte(place + 1) ~= 49 then
      return false
    end
    asked[place] = true
  end
  for place = 0, many - 1 do
    if pending:byte(place + 1) == 49 and not asked[place] then
      return false
    end
  end
  return true
end

local function answer_to(id, number, holder, by_ms, some)
  local state, places = redis.call('HGET', HELD, id), {struct.unpack('>' .. ('H'):rep(#some / 2), some)}
  places[#places] = nil -- where `unpack` has come to
  local answers = {}
  local _, many, delivery, _, _, _, at = struct.unpack(STATE, state or SINGLE)
  local together = many > 1 and are_all(state, places)
  local ends = together and extended(id, state, number, holder, by_ms)
  if many > 1 and not together and delivery == number and state:sub(at + many) == holder then
    seldom().loosen(id) -- from now on their leases differ
  end
  for n, place in ipairs(places) do
    local each = place == 0 and id or id_of(number_of(id) + place)
    answers[n] = ends or extended(each, redis.call('HGET', HELD, each), number + place, holder, by_ms)
  end
  return answers
end

local answers = {now}
for n = 2, #ARGV, 5 do
  answers[#answers + 1] = answer_to(ARGV[n], tonumber(ARGV[n + 1]), ARGV[n + 2], tonumber(ARGV[n + 3]), ARGV[n + 4])
end
finally()
return answers
