-- Ends leases: each message is done, waits again, or becomes a dead letter, as its holder says.
-- ARGV: time, then for each: id, number of the delivery (0: whichever), holder, verb (a, r, d, or l: give it back as if
-- it had never been delivered), delay of a retry in ms, reason. Returns {now, for each: a(cknowledged), r(etry),
-- d(ead letter), e(xpired) or s(tale: nothing was changed)}, or -1 if there is no such queue.
if not TYPE then
  return -1
end
settle()
local PAGE = 500 -- as many arguments fit on Lua's stack

-- Whole messages that are done: what `finish` does for each, in a few calls for all.
local function done_with(ids, since)
  if #ids == 0 then
    return
  end
  if fifo then
    for n, body in ipairs(redis.call('HMGET', MSG, unpack(ids))) do
      local lane = lane_of(ids[n], (select(8, struct.unpack(HEADER, body))))
      redis.call('HDEL', GROUPS, lane)
      dirty[lane] = true
    end
  end
  redis.call('ZREM', LEASED, unpack(ids))
  redis.call('HDEL', HELD, unpack(ids))
  redis.call('HDEL', MSG, unpack(ids))
  for _, key in ipairs({EXPIRY, WHY}) do
    if redis.call('EXISTS', key) == 1 then
      redis.call(key == WHY and 'HDEL' or 'ZREM', key, unpack(ids))
    end
  end
  count('acknowledged', #ids)
  count('processing_ms', #ids * now - since)
end

local answers = {now}
for first = 2, #ARGV, 6 * PAGE do
  local ids, done, since = {}, {}, 0
  local last = math.min(first + 6 * PAGE - 1, #ARGV)
  for n = first, last, 6 do
    ids[#ids + 1] = ARGV[n]
  end
  local ends = redis.call('ZMSCORE', LEASED, unpack(ids))
  local states = redis.call('HMGET', HELD, unpack(ids))
  local seen = {}
  for n = first, last, 6 do
    local at = (n - first) / 6 + 1
    local id, delivery, verb, state = ARGV[n], tonumber(ARGV[n + 1]), ARGV[n + 3], states[at]
    local answer = 's'
    if state and ends[at] and tonumber(ends[at]) > now and not seen[id] then
      local _, number, from, _, _, holder_at = struct.unpack(STATE, state)
      if state:sub(holder_at) == ARGV[n + 2] and (delivery == 0 or delivery == number) then
        seen[id] = true
        if verb ~= 'a' then
          answer = give_back(id, tonumber(ARGV[n + 4]), ARGV[n + 5], verb)
        elseif #id == 10 then
          done[#done + 1], since, answer = id, since + from, 'a'
        else
          redis.call('ZREM', LEASED, id)
          if fifo then
            local lane = lane_of(id)
            redis.call('HDEL', GROUPS, lane)
            dirty[lane] = true
          end
          finish(id, 'acknowledged', 'acknowledged')
          count('processing_ms', now - from)
          answer = 'a'
        end
      end
    end
    answers[#answers + 1] = answer
  end
  done_with(done, since)
end
close()
return answers
