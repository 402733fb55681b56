-- One write and the expiry of its key, together, so that no crash leaves a key that never ends.
-- ARGV: "write" (always set the expiry) or "create" (only on a key that has none); milliseconds; the command, and
-- its arguments after the key.
local reply = redis.call(ARGV[3], KEYS[1], unpack(ARGV, 4))
if ARGV[1] == 'write' or redis.call('PTTL', KEYS[1]) == -1 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return reply
