-- Ends leases: each message is done, waits again, or becomes a dead letter, as its holder says.
-- ARGV: time, then for each: id, number of the delivery (0: whichever), holder, verb (a, r, d), delay of a retry in ms,
-- reason. Returns {now, for each: a(cknowledged), r(etry), d(ead letter), e(xpired) or s(tale: nothing was changed)}, or
-- -1 if there is no such queue.
if not TYPE then
  return -1
end
settle()
local answers = {now}
for n = 2, #ARGV, 6 do
  local id, delivery, holder, verb = ARGV[n], tonumber(ARGV[n + 1]), ARGV[n + 2], ARGV[n + 3]
  local ends = redis.call('ZSCORE', LEASED, id)
  local state = ends and redis.call('HGET', HELD, id)
  local answer = 's'
  if state and tonumber(ends) > now then
    local _, number, since, _, _, at = struct.unpack(STATE, state)
    if state:sub(at) == holder and (delivery == 0 or delivery == number) then
      if verb == 'a' then
        redis.call('ZREM', LEASED, id)
        if fifo then
          local lane = select(8, struct.unpack(HEADER, redis.call('HGET', MSG, base_of(id))))
          lane = lane_of(id, lane)
          redis.call('HDEL', GROUPS, lane)
          dirty[lane] = true
        end
        finish(id, 'acknowledged', 'acknowledged')
        count('processing_ms', now - since)
        answer = 'a'
      else
        answer = give_back(id, tonumber(ARGV[n + 4]), ARGV[n + 5], verb == 'd')
      end
    end
  end
  answers[#answers + 1] = answer
end
close()
return answers
