-- Makes or changes a recurring send. KEYS: due (zset, ms), definitions (hash), taken (hash)
-- ARGV: name, definition, when it is due, how many there may be. Returns 1 made, 0 changed, -2 too many.
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 and redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[4]) then
  return -2
end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
return redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
