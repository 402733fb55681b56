-- Makes a queue, or says that it exists.
-- ARGV: time, prefix of message ids, whether dead letters are kept, TTL of dead letters in ms, then settings in pairs
-- Returns 1 made, 0 there with the same settings, or the settings that are there as a flat list.
local wanted = {}
for n = 5, #ARGV, 2 do
  wanted[#wanted + 1], wanted[#wanted + 2] = ARGV[n], ARGV[n + 1]
end
if TYPE then
  for n = 1, #wanted, 2 do
    if redis.call('HGET', CFG, wanted[n]) ~= wanted[n + 1] then
      local there = {}
      for k = 1, #wanted, 2 do
        there[k], there[k + 1] = wanted[k], redis.call('HGET', CFG, wanted[k])
      end
      return there
    end
  end
  return 0
end
redis.call('HSET', CFG, 'prefix', ARGV[2], 'created_at', now, unpack(wanted))
if ARGV[3] == '1' then
  redis.call('HSET', KEYS[13], 'prefix', ARGV[2] .. 'dead-', 'created_at', now, 'type', 'priority', 'max_size', 0,
    'visibility_ms', 30000, 'ack_ms', 300000, 'dedup', 0, 'window_ms', 0, 'dlq', 0, 'retries', 65535, 'ttl_ms', ARGV[4])
end
return 1
