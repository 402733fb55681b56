-- An index: what may carry a tag, or depend on something, by when that ends. What has ended leaves with each addition.
-- KEYS: index   ARGV: member, TTL in ms (0: none)   A second more than the value itself lives, for it is written after.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ttl = tonumber(ARGV[2])
redis.call('ZADD', KEYS[1], 'GT', ttl > 0 and now + ttl + 1000 or '+inf', ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 1)
local last = tonumber(redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2])
if last == math.huge then
  redis.call('PERSIST', KEYS[1])
else
  redis.call('PEXPIREAT', KEYS[1], last)
end
return 1
