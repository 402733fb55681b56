-- Takes a lock, with a fence that is higher than any before it.
-- KEYS: lock, fence[, owner]   ARGV: token, ttl_ms, fence_ttl_ms[, value of the lock or '', agent]
-- Returns the fence, or {ms until the lock runs out (-1: never), who holds it} when someone else does.
local lock, fence_key, owner = KEYS[1], KEYS[2], KEYS[3]
local token = ARGV[1]
local value = (not owner or ARGV[4] == '') and token or ARGV[4]
local HIGHEST = 9007199254740991

-- Servers write a number in full when they store it, but some of them write round ones as 1.79e+15.
local function spelled(number)
  return number % 1000000 == 0 and string.format('%.0f', number) or number
end

if redis.call('SET', lock, value, 'NX', 'PX', ARGV[2]) then
  local time = redis.call('TIME')
  -- The clock makes fences grow even where the counter was lost: expired, or not on disk when the server died.
  local fence = time[1] * 1000000 + time[2]
  local before = redis.pcall('SET', fence_key, spelled(fence), 'PX', ARGV[3], 'GET')
  if before then
    local last = type(before) == 'string' and tonumber(before)
    if not last or last >= HIGHEST then
      redis.call('DEL', lock)
      if before.err then
        return before
      end
      redis.call('SET', fence_key, before, 'PX', ARGV[3])
      return redis.error_reply('FENCE the fence counter holds no number that can grow')
    elseif last >= fence then
      fence = last + 1
      redis.call('SET', fence_key, spelled(fence), 'PX', ARGV[3])
    end
  end
  if owner then
    redis.call('DEL', owner)
    redis.call('HSET', owner, 'agent', ARGV[5], 'token', token, 'fence', spelled(fence),
      'acquired_at', string.format('%.3f', time[1] + time[2] / 1000000))
    redis.call('PEXPIREAT', owner, redis.call('PEXPIRETIME', lock))
  end
  return fence
end

local held = redis.call('GET', lock)
if owner then
  -- The record speaks of this very lock only if both run out in the same millisecond; else it is left over.
  if redis.call('PEXPIRETIME', lock) ~= redis.call('PEXPIRETIME', owner) then
    return {redis.call('PTTL', lock), ''}
  elseif redis.call('HGET', owner, 'token') ~= token then
    return {redis.call('PTTL', lock), redis.call('HGET', owner, 'agent') or ''}
  end
elseif held ~= token then
  return {redis.call('PTTL', lock), held}
end
-- The same caller asks again, for it never heard the answer: its fence is as it was.
redis.call('PEXPIRE', lock, ARGV[2])
if owner then
  redis.call('PEXPIREAT', owner, redis.call('PEXPIRETIME', lock))
end
return tonumber(redis.call('GET', fence_key))
