-- The counters and what is there. ARGV: time, then names of settings
-- Returns {now, ready, delayed, in flight, subscribers, {counter and value…}, the settings}, or -1 if there is no such queue.
if not TYPE then
  return -1
end
settle()
finally()
local told = {}
for name, value in pairs(counts) do
  told[#told + 1], told[#told + 2] = name, value
end
return {now, counts.here - counts.leased - counts.delayed, counts.delayed, counts.leased, redis.call('HLEN', SUBS), told,
  redis.call('HMGET', CFG, unpack(ARGV, 2))}
