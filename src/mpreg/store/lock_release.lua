-- Gives a lock back, if it is still the caller's, and tells those who wait for it.
-- KEYS: lock[, owner]   ARGV: token, channel
-- Returns 1, or 0 when the lock is not (or no longer) the caller's; then nothing was written.
local lock, owner = KEYS[1], KEYS[2]
if owner then
  if redis.call('HGET', owner, 'token') ~= ARGV[1]
    or redis.call('PEXPIRETIME', lock) ~= redis.call('PEXPIRETIME', owner) then
    return 0
  end
  redis.call('DEL', lock, owner)
elseif redis.call('GET', lock) ~= ARGV[1] then
  return 0
else
  redis.call('DEL', lock)
end
-- A user who may not publish can still release; then waiters find out by asking.
redis.pcall('PUBLISH', ARGV[2], 'released')
return 1
