-- The counters and what is there. ARGV: time, then names of settings
-- Returns {now, ready, delayed, in flight, subscribers, the counters, the settings}, or -1 if there is no such queue.
if not TYPE then
  return -1
end
settle()
finally()
return {now, counts[HERE] - counts[LEASES] - counts[DELAYS], counts[DELAYS], counts[LEASES], redis.call('HLEN', SUBS),
  counts, redis.call('HMGET', CFG, unpack(ARGV, 2))}
