-- Messages that nobody keeps: who subscribes now hears them.
-- ARGV: time, then pairs: topic, the message. Returns {prefix of ids, for each: {number, subscribers…}}, or -1 if there
-- is no such queue.
if not TYPE then
  return -1
end
local number, answers = tonumber(settings[3] or 0), {PREFIX}
for n = 2, #ARGV, 2 do
  local names = subscribed_to(ARGV[n])
  number = number + 1
  local id = format('%010x', number)
  if #names > 0 then
    redis.call('PUBLISH', CFG:sub(1, -4) .. 'events', 'f' .. cmsgpack.pack({PREFIX .. id, names}) .. ARGV[n + 1])
  end
  answers[#answers + 1] = {id, unpack(names)}
end
redis.call('HSET', CFG, 'seq', number)
count('fired', #answers - 1)
close()
return answers
