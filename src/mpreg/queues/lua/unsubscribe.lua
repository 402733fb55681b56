-- A subscriber ends. ARGV: time, subscriber, whose it is. Returns 1, or 0 if it was not there or not this owner's.
local known = redis.call('HGET', SUBS, ARGV[2])
if not known or cmsgpack.unpack(known).owner ~= ARGV[3] then
  return 0
end
redis.call('HDEL', SUBS, ARGV[2])
return 1
