-- Write and remove fields of a hash in one step.
-- ARGV: "replace" (what was there goes first) or "change"; "write", "create" or "never" set the expiry; milliseconds;
-- how many arguments are fields and values; these; then the names of fields to remove.
local renew, written = ARGV[2], tonumber(ARGV[4])
local left = -2
if ARGV[1] == 'replace' then
  redis.call('HLEN', KEYS[1]) -- what is no hash is not ours to replace: WRONGTYPE
  left = redis.call('PTTL', KEYS[1])
  redis.call('DEL', KEYS[1])
end
if written > 0 then
  redis.call('HSET', KEYS[1], unpack(ARGV, 5, 4 + written))
end
if #ARGV > 4 + written then
  redis.call('HDEL', KEYS[1], unpack(ARGV, 5 + written))
end
if renew == 'create' and left > 0 then
  redis.call('PEXPIRE', KEYS[1], left)
elseif renew == 'write' or (renew == 'create' and redis.call('PTTL', KEYS[1]) == -1) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return redis.call('EXISTS', KEYS[1])
