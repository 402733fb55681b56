-- Lengthens a claim that is still this worker's.
-- KEYS: claim   ARGV: worker, ttl_ms
-- Returns 1, or 0 when the claim ran out or is another worker's; then nothing was written.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
