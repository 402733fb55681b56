-- Lets leases end later (or sooner).
-- ARGV: time, then for messages of one delivery: prefix and id of the first that was in it, number of its delivery, holder, how long from
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
  sooner = sooner or later < tonumber(ends)
  redis.call('ZADD', LEASED, later, id)
  expect(later)
  return later
end

-- Which of a parcel's messages are not acknowledged, and whether these are asked for: all of them, or some.
local function pending_of(state, places)
  local _, many, _, _, _, _, at = struct.unpack(STATE, state)
  local pending, left, asked = {}, 0, 0
  for place = 0, many - 1 do
    pending[place] = state:byte(at + place) == 49
    left = left + (pending[place] and 1 or 0)
  end
  local seen = {}
  for _, place in ipairs(places) do
    asked = asked + (pending[place] and not seen[place] and 1 or 0)
    seen[place] = true
  end
  return pending, asked == left, asked > 0
end

local function answer_to(id, number, holder, by_ms, some)
  local state, places = redis.call('HGET', HELD, id), {struct.unpack('>' .. ('H'):rep(#some / 2), some)}
  places[#places] = nil -- where `unpack` has come to
  local answers = {}
  local _, many, delivery, _, _, _, at = struct.unpack(STATE, state or SINGLE)
  if many > 1 then
    local pending, all, any = pending_of(state, places)
    if all or not any then
      local ends = any and extended(id, state, number, holder, by_ms) or 0
      for n, place in ipairs(places) do
        answers[n] = pending[place] and ends or 0
      end
      return answers
    elseif delivery == number and state:sub(at + many) == holder then
      seldom().loosen(id) -- from now on their leases differ
    end
  end
  for n, place in ipairs(places) do
    local each = (place == 0 or id == '') and id or id_of(number_of(id) + place)
    answers[n] = extended(each, redis.call('HGET', HELD, each), number + place, holder, by_ms)
  end
  return answers
end

local answers = {now}
for n = 2, #ARGV, 5 do
  answers[#answers + 1] = answer_to(own_id(ARGV[n]), tonumber(ARGV[n + 1]), ARGV[n + 2], tonumber(ARGV[n + 3]), ARGV[n + 4])
end
finally()
return answers
