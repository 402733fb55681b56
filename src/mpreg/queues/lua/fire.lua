-- Messages that nobody keeps: who subscribes now hears them.
-- ARGV: time, then pairs: topic, the message. Returns {prefix of ids, for each: {number, subscribers…}}, or -1 if there
-- is no such queue.
if not TYPE then
  return -1
end
local answers = {PREFIX}
for n = 2, #ARGV, 2 do
  local names = seldom().subscribed_to(ARGV[n])
  count(SEQ, 1)
  count(FIRED, 1)
  local id = id_of(counts[SEQ])
  if #names > 0 then
    redis.call('PUBLISH', CFG:sub(1, -4) .. 'events', 'f' .. cmsgpack.pack({PREFIX .. id, names}) .. ARGV[n + 1])
  end
  answers[#answers + 1] = {id, unpack(names)}
end
finally()
return answers
