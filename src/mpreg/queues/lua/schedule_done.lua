-- What was taken has been sent. KEYS: as schedule_put   ARGV: name, when it was due, when it is due next
-- Returns 1, or 0 if it was changed or deleted meanwhile.
if redis.call('HGET', KEYS[3], ARGV[1]) ~= ARGV[2] then
  return 0
end
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
return 1
