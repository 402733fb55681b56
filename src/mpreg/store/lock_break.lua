-- Takes a lock away from whoever holds it, writes down that and why, and tells those who wait for it.
-- KEYS: lock, breaks[, owner]   ARGV: token that must hold it ('' for any), by, reason, keep, keep_ms, channel
-- Returns the entry that was written, or '' when nobody (or another token) holds the lock.
local lock, owner = KEYS[1], KEYS[3]
local value = redis.call('GET', lock)
local token, agent, fence = value, '', ''
if value and owner then
  token = ''
  if redis.call('PEXPIRETIME', lock) == redis.call('PEXPIRETIME', owner) then
    local record = redis.call('HMGET', owner, 'token', 'agent', 'fence')
    token, agent, fence = record[1] or '', record[2] or '', record[3] or ''
  end
end
if not value or (ARGV[1] ~= '' and ARGV[1] ~= token) then
  return ''
end
local time = redis.call('TIME')
local entry = cjson.encode({
  at = tonumber(time[1]) + tonumber(time[2]) / 1000000, by = ARGV[2], reason = ARGV[3],
  token = token, agent = agent, fence = fence, ttl_ms = redis.call('PTTL', lock),
})
redis.call('LPUSH', KEYS[2], entry)
redis.call('LTRIM', KEYS[2], 0, ARGV[4] - 1)
redis.call('PEXPIRE', KEYS[2], ARGV[5])
redis.call('DEL', lock)
if owner then
  redis.call('DEL', owner)
end
redis.pcall('PUBLISH', ARGV[6], 'broken')
return entry
