-- Makes a subscriber known for a while, or for a while longer, so that broadcasts are kept for it.
-- ARGV: time, subscriber, whose it is, by which session, for how many ms, how many there may be, then its patterns. The
-- same owner may come by another session; then the session before has no say any more.
-- Returns 1, 0 if the name is taken by someone else, -1 if there is no such queue, -2 if there are too many.
if not TYPE then
  return -1
end
local known = redis.call('HGET', SUBS, ARGV[2])
if known then
  local subscriber = cmsgpack.unpack(known)
  if subscriber.owner ~= ARGV[3] and subscriber.until_ms > now then
    return 0
  end
elseif redis.call('HLEN', SUBS) >= tonumber(ARGV[6]) then
  local all, room = redis.call('HGETALL', SUBS), false
  for n = 1, #all, 2 do
    if cmsgpack.unpack(all[n + 1]).until_ms <= now then
      redis.call('HDEL', SUBS, all[n])
      room = true
    end
  end
  if not room then
    return -2
  end
end
local patterns = {}
for n = 7, #ARGV do
  patterns[#patterns + 1] = ARGV[n]
end
redis.call('HSET', SUBS, ARGV[2],
  cmsgpack.pack({until_ms = now + ARGV[5], owner = ARGV[3], by = ARGV[4], patterns = patterns}))
return 1
