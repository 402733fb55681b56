-- The next messages, without taking them. ARGV: time, how many, subscriber, then patterns (none: every topic)
-- Returns {now, prefix of ids, for each parcel: id, deliveries, the body, why it is here (JSON, of a dead letter; else '')}, or
-- -1. The last one may hold more than were asked for.
if not TYPE then
  return -1
end
settle()
finally()
local patterns
for n = 4, #ARGV do
  patterns = patterns or {}
  patterns[#patterns + 1] = seldom().split(ARGV[n])
end
local out = {now, PREFIX}
for _, one in ipairs(choose(ARGV[3], patterns, tonumber(ARGV[2]))) do
  local state = redis.call('HGET', HELD, one.id)
  local at = #out
  out[at + 1], out[at + 2] = one.id, state and struct.unpack('>H', state) or 0
  out[at + 3], out[at + 4] = redis.call('HGET', MSG, base_of(one.id)), redis.call('HGET', WHY, one.id) or ''
end
return out
