-- The counters and what is there. ARGV: time
-- Returns {now, ready, delayed, in flight, subscribers, all of cfg as a flat list}, or -1 if there is no such queue.
if not TYPE then
  return -1
end
settle()
close()
local delayed, ready = redis.call('ZCARD', DELAYED), redis.call('ZCARD', READY)
return {now, fifo and ready - delayed or ready, delayed, redis.call('ZCARD', LEASED), redis.call('HLEN', SUBS),
  redis.call('HGETALL', CFG)}
