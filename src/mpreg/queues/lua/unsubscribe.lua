-- A subscriber ends. ARGV: time, subscriber, by which session. Returns 1, or 0 if it was not there by this session.
local known = redis.call('HGET', SUBS, ARGV[2])
if not known or cmsgpack.unpack(known).by ~= ARGV[3] then
  return 0
end
redis.call('HDEL', SUBS, ARGV[2])
return 1
