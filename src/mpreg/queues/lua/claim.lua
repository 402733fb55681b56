-- Hands out messages, each with a lease, to several subscribers. What is there is shared out evenly, and only what one
-- does not want goes to the others.
-- ARGV: time, then for each subscriber: name, how many, visibility in ms (0: each message's own), how many patterns, and
-- these (none: every topic). Returns {now, when to ask again (0: not before something is sent), prefix of ids, then for each
-- parcel: which subscriber, id, deliveries, number of the first one's delivery (the others' follow), end of the lease, until
-- when it can be extended, the body}, or -1 if there is no such queue.
if not TYPE then
  return -1
end
settle()
close() -- lanes must be right before one is chosen
local PARCELS, BYTES_MAX = 32, 4194304 -- a reply with more in it than this is asked for in parts
local out, bytes = {now, 0, PREFIX}, 0
local takers = {}
do
  local n = 2
  while n <= #ARGV do
    local taker = {
      name = ARGV[n], left = tonumber(ARGV[n + 1]), visibility = tonumber(ARGV[n + 2]), number = #takers,
    }
    local patterns = tonumber(ARGV[n + 3])
    for k = n + 4, n + 3 + patterns do
      taker.patterns = taker.patterns or {}
      taker.patterns[#taker.patterns + 1] = seldom().split(ARGV[k])
    end
    takers[#takers + 1] = taker
    n = n + 4 + patterns
  end
end

-- Of a parcel only the first messages were wanted. The rest goes on waiting in parts of the size that was, so that whoever
-- takes a few at a time does not have it written anew each time.
local function keep_rest(one, header, part, dealt, size, written)
  local expires = struct.unpack('>d', header)
  local first, ready, expiring = number_of(one.id), {}, {}
  for n = dealt + 1, one.many, size do
    local last, id = math.min(n + size - 1, one.many), id_of(first + n - 1)
    written[#written + 1], written[#written + 2] = id, header .. part(n, last)
    local order = TYPE == 'delay' and one.order or one.order + n - 1
    ready[#ready + 1], ready[#ready + 2] = 0, member_of(one.lane, order, id, last - n + 1)
    if expires > 0 then
      expiring[#expiring + 1], expiring[#expiring + 2] = expires, id
    end
  end
  write('ZADD', READY, ready)
  write('ZADD', EXPIRY, expiring)
end

-- Some parcels to takers, each as many as it wants, in order.
local function deal(chosen, group, turn)
  local ids, bases = {}, {}
  for n, one in ipairs(chosen) do
    ids[n], bases[n] = one.id, base_of(one.id)
  end
  local bodies = redis.call('HMGET', MSG, unpack(bases))
  local states = redis.call('HMGET', HELD, unpack(ids))
  local gone, written, leases, holders, groups = {}, {}, {}, {}, {}
  local ranges = {} -- of each lane, which is taken from its head on
  for n, one in ipairs(chosen) do
    local dealt, header, part = 0, nil, nil
    local _, _, _, visibility, ack = struct.unpack('>dddI4I4', bodies[n])
    local deliveries = (states[n] and struct.unpack('>H', states[n]) or 0) + 1
    while dealt < one.many and group[turn] do
      local taker, id, body, order = group[turn], one.id, bodies[n], one.order
      local many = math.min(taker.wants, one.many - dealt)
      if many < one.many then
        if not part then
          header, _, part = seldom().open(body)
        end
        id, body = id_of(number_of(id) + dealt), header .. part(dealt + 1, dealt + many)
        order = TYPE == 'delay' and order or order + dealt
        written[#written + 1], written[#written + 2] = id, body
      end
      local number, limit = counts[DELIVERIES] + 1, now + ack
      local ends = math.min(limit, now + (taker.visibility > 0 and taker.visibility or visibility))
      leases[#leases + 1], leases[#leases + 2] = ends, id
      holders[#holders + 1] = id
      holders[#holders + 1] = struct.pack(STATE, deliveries, many, number, now, limit, order) .. ('1'):rep(many) ..
        taker.name
      if fifo then
        groups[#groups + 1], groups[#groups + 2] = one.lane, id
      end
      expect(ends)
      count(DELIVERIES, many)
      count(RECEIVED, many)
      count(LEASES, many)
      local at = #out
      out[at + 1], out[at + 2], out[at + 3], out[at + 4] = taker.number, id, deliveries, number
      out[at + 5], out[at + 6], out[at + 7] = ends, limit, body
      bytes = bytes + #body
      dealt, taker.wants, taker.left = dealt + many, taker.wants - many, taker.left - many
      if dealt < one.many and not group[turn + 1] and taker.wants == 0 then
        keep_rest(one, header, part, dealt, many, written)
      end
      if taker.wants == 0 then
        turn = turn + 1
      end
    end
    if ranges[one.lane] then
      ranges[one.lane].last = one.member
    else
      ranges[one.lane] = {first = one.member}
    end
    dirty[one.lane] = true
  end
  for _, range in pairs(ranges) do
    if range.last then
      redis.call('ZREMRANGEBYLEX', READY, '[' .. range.first, '[' .. range.last)
    else
      gone[#gone + 1] = range.first
    end
  end
  write('ZREM', READY, gone)
  write('HSET', MSG, written)
  write('ZADD', LEASED, leases)
  write('HSET', HELD, holders)
  write('HSET', GROUPS, groups)
  return turn
end

-- To takers of the same topics, each as many as it `wants`.
local function hand_to(group)
  local wanted, turn = 0, 1
  for _, taker in ipairs(group) do
    wanted = wanted + taker.wants
  end
  local chosen = choose(group[1].name, group[1].patterns, wanted)
  for first = 1, #chosen, PARCELS do
    if bytes > BYTES_MAX then
      break
    end
    turn = deal({unpack(chosen, first, math.min(first + PARCELS - 1, #chosen))}, group, turn)
  end
  close(true)
end

-- Who takes whatever there is, and has no copies of its own, is served together with its neighbours.
local function hand_out(some)
  local group = {}
  for n, taker in ipairs(some) do
    group[#group + 1] = taker
    local following = some[n + 1]
    if copies_wait or taker.patterns or not following or following.patterns then
      hand_to(group)
      group = {}
    end
  end
end

local waiting = counts[HERE] - counts[LEASES] - (fifo and 0 or counts[DELAYS])
local share = #takers == 1 and math.huge or math.max(1, floor(waiting / #takers))
for _, taker in ipairs(takers) do
  taker.wants = math.min(taker.left, share)
end
hand_out(takers)
local eager = {}
for _, taker in ipairs(takers) do
  if taker.wants == 0 and taker.left > 0 then
    taker.wants = taker.left
    eager[#eager + 1] = taker
  end
end
hand_out(eager)
finally(true)
out[2] = bytes > BYTES_MAX and now or counts[SOONEST]
return out
