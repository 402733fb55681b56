-- What is known of a lock, as one moment's picture.
-- KEYS: lock, fence, breaks[, owner]
-- Returns {value or '', ms until it runs out, last fence or '', owner record as a flat list, past breaks}.
local lock, owner = KEYS[1], KEYS[4]
local record = {}
if owner and redis.call('PEXPIRETIME', lock) == redis.call('PEXPIRETIME', owner) then
  record = redis.call('HGETALL', owner)
end
return {redis.call('GET', lock) or '', redis.call('PTTL', lock), redis.call('GET', KEYS[2]) or '', record,
  redis.call('LRANGE', KEYS[3], 0, -1)}
