-- KEYS: as schedule_put   ARGV: name. Returns 1, or 0 if there was none.
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
return redis.call('HDEL', KEYS[2], ARGV[1])
