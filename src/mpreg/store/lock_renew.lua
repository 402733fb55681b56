-- Begins the TTL of a lock anew, if it is still the caller's.
-- KEYS: lock, fence[, owner]   ARGV: token, ttl_ms, fence_ttl_ms
-- Returns 1, or 0 when the lock is not (or no longer) the caller's; then nothing was written.
local lock, owner = KEYS[1], KEYS[3]
if owner then
  if redis.call('HGET', owner, 'token') ~= ARGV[1]
    or redis.call('PEXPIRETIME', lock) ~= redis.call('PEXPIRETIME', owner) then
    return 0
  end
elseif redis.call('GET', lock) ~= ARGV[1] then
  return 0
end
local time = redis.call('TIME')
local until_ms = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2])
redis.call('PEXPIREAT', lock, until_ms)
if owner then
  redis.call('PEXPIREAT', owner, until_ms)
end
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 1
