-- Messages that nobody keeps: whoever listens to the queue now hears them.
-- ARGV: time, then the messages. Returns 0, or -1 if there is no such queue.
if not TYPE then
  return -1
end
for n = 2, #ARGV do
  redis.call('PUBLISH', CFG:sub(1, -4) .. 'events', 'f' .. ARGV[n])
end
count('fired', #ARGV - 1)
close()
return 0
