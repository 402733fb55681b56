-- Takes what is due, for so long that it can be sent. KEYS: as schedule_put   ARGV: for how many ms, how many at most
-- Returns {now, when the next one is due (0: none), then for each: {name, when it was due, definition}}.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local out = {now, 0}
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[2])
for n = 1, #found, 2 do
  local name = found[n]
  local definition = redis.call('HGET', KEYS[2], name)
  if definition then
    local due = redis.call('HGET', KEYS[3], name) or found[n + 1] -- taken before, by one that did not come back
    redis.call('HSET', KEYS[3], name, due)
    redis.call('ZADD', KEYS[1], now + ARGV[1], name)
    out[#out + 1] = {name, due, definition}
  else
    redis.call('ZREM', KEYS[1], name)
  end
end
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
out[2] = first and tonumber(first) or 0
return out
