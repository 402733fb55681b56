-- Takes a lock, with a fence that is higher than any before it.
-- KEYS: lock, fence[, owner]   ARGV: token, ttl_ms, fence_ttl_ms, value of the lock, agent
-- Returns the fence, or {ms until the lock runs out (-1: never), who holds it} when someone else does.
local lock, fence_key, owner = KEYS[1], KEYS[2], KEYS[3]
local token = ARGV[1]

local function last_fence()
  local last = tonumber(redis.call('GET', fence_key) or 0)
  if not last or last >= 9007199254740991 then
    error({err = 'FENCE the fence counter holds no number that can grow'})
  end
  return last
end

if redis.call('EXISTS', lock) == 1 then
  local value = redis.call('GET', lock)
  if owner then
    -- The record speaks of this very lock only if both run out in the same millisecond; else it is left over.
    if redis.call('PEXPIRETIME', lock) ~= redis.call('PEXPIRETIME', owner) then
      return {redis.call('PTTL', lock), ''}
    elseif redis.call('HGET', owner, 'token') ~= token then
      return {redis.call('PTTL', lock), redis.call('HGET', owner, 'agent') or ''}
    end
  elseif value ~= token then
    return {redis.call('PTTL', lock), value}
  end
  -- The same caller asks again, for it never heard the answer: its fence is as it was.
  local fence = last_fence()
  redis.call('PEXPIRE', lock, ARGV[2])
  if owner then
    redis.call('PEXPIREAT', owner, redis.call('PEXPIRETIME', lock))
  end
  return fence
end

local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local last = last_fence()
-- The clock makes fences grow even where the counter was lost: expired, or not on disk when the server died.
local fence = last < now_us and now_us or last + 1
local text = string.format('%.0f', fence)
redis.call('SET', fence_key, text, 'PX', ARGV[3])
if owner then
  redis.call('SET', lock, ARGV[4] ~= '' and ARGV[4] or token, 'NX', 'PX', ARGV[2])
  redis.call('DEL', owner)
  redis.call('HSET', owner, 'agent', ARGV[5], 'token', token, 'fence', text,
    'acquired_at', string.format('%.3f', now_us / 1000000))
  redis.call('PEXPIREAT', owner, redis.call('PEXPIRETIME', lock))
else
  redis.call('SET', lock, token, 'NX', 'PX', ARGV[2])
end
return fence
