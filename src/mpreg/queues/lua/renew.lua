-- Subscribers are still there. ARGV: time, by which session, for how many ms, then their names
-- Returns {now, 1 or 0 for each: 0 if it is not this session's any more}, or -1 if there is no such queue.
if not TYPE then
  return -1
end
local answers = {now}
for n = 4, #ARGV do
  local known = redis.call('HGET', SUBS, ARGV[n])
  local subscriber = known and cmsgpack.unpack(known)
  local mine = subscriber and subscriber.by == ARGV[2]
  if mine then
    subscriber.until_ms = now + ARGV[3]
    redis.call('HSET', SUBS, ARGV[n], cmsgpack.pack(subscriber))
  end
  answers[#answers + 1] = mine and 1 or 0
end
return answers
