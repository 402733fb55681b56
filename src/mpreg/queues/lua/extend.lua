-- Lets leases end later (or sooner).
-- ARGV: time, then for each: id, number of the delivery (0: whichever), holder, how long from now in ms
-- Returns {now, for each: when it ends, or 0 if the lease is not the holder's (any more)}, or -1 if there is no such queue.
if not TYPE then
  return -1
end
settle()
local answers = {now}
for n = 2, #ARGV, 4 do
  local id, delivery, holder = ARGV[n], tonumber(ARGV[n + 1]), ARGV[n + 2]
  local ends = redis.call('ZSCORE', LEASED, id)
  local state = ends and redis.call('HGET', HELD, id)
  local answer = 0
  if state and tonumber(ends) > now then
    local _, number, _, limit, _, at = struct.unpack(STATE, state)
    if state:sub(at) == holder and (delivery == 0 or delivery == number) and limit > now then
      answer = math.min(limit, now + tonumber(ARGV[n + 3]))
      redis.call('ZADD', LEASED, answer, id)
    end
  end
  answers[#answers + 1] = answer
end
close()
return answers
