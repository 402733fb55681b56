-- Takes a lock, with a fence that is higher than any before it. Atomic: nothing is written unless all of it is.
-- KEYS: lock, fence[, owner]   ARGV: token, ttl_ms, fence_ttl_ms, value of the lock, agent
-- Returns the fence, or {ms until the lock runs out (-1: never), who holds it} when someone else does.
local lock, fence_key, owner = KEYS[1], KEYS[2], KEYS[3]
local token, ttl_ms = ARGV[1], tonumber(ARGV[2])

local value = redis.call('GET', lock)
if value then
  if owner then
    -- The record speaks of this very lock only if both run out in the same millisecond; else it is left over.
    local current = redis.call('PEXPIRETIME', lock) == redis.call('PEXPIRETIME', owner)
    if not current then
      return {redis.call('PTTL', lock), ''}
    elseif redis.call('HGET', owner, 'token') ~= token then
      return {redis.call('PTTL', lock), redis.call('HGET', owner, 'agent') or ''}
    end
  elseif value ~= token then
    return {redis.call('PTTL', lock), value}
  end
end

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local last = tonumber(redis.call('GET', fence_key) or '0')
if not last or last >= 9007199254740991 then
  return redis.error_reply('FENCE the fence counter holds no number that can grow')
end
local until_ms = string.format('%.0f', math.floor(now_us / 1000) + ttl_ms)

if value then
  -- The same caller asks again, for it never heard the answer: the lock and its fence are as they were.
  redis.call('PEXPIREAT', lock, until_ms)
  if owner then
    redis.call('PEXPIREAT', owner, until_ms)
  end
  return last
end

-- The clock makes fences grow even where the counter was lost: expired, or not on disk when the server died.
local fence = last < now_us and now_us or last + 1
local text = string.format('%.0f', fence)
if owner then
  redis.call('DEL', owner)
  redis.call('HSET', owner, 'agent', ARGV[5], 'token', token, 'fence', text,
    'acquired_at', string.format('%.3f', now_us / 1000000))
  redis.call('PEXPIREAT', owner, until_ms)
end
redis.call('SET', fence_key, text, 'PX', ARGV[3])
redis.call('SET', lock, ARGV[4] ~= '' and ARGV[4] or token, 'NX', 'PXAT', until_ms)
return fence
