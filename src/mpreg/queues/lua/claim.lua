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

-- There is room for the first `wanted` of a parcel only. It is cut into parts of that size, so that whoever takes a few at
-- a time does not have the rest of it written anew each time.
local function cut(one, wanted)
  local header, many, part = seldom().open(redis.call('HGET', MSG, one.id))
  local expires = struct.unpack('>d', header)
  local first, bodies, ready, expiring = number_of(one.id), {one.id, header .. part(1, wanted)}, {}, {}
  for n = wanted + 1, many, wanted do
    local last, id = math.min(n + wanted - 1, many), id_of(first + n - 1)
    bodies[#bodies + 1], bodies[#bodies + 2] = id, header .. part(n, last)
    local order = TYPE == 'delay' and one.order or one.order + n - 1
    ready[#ready + 1], ready[#ready + 2] = 0, member_of(one.lane, order, id, last - n + 1)
    if expires > 0 then
      expiring[#expiring + 1], expiring[#expiring + 2] = expires, id
    end
  end
  write('HSET', MSG, bodies)
  write('ZADD', READY, ready)
  write('ZADD', EXPIRY, expiring)
  one.many = wanted
end

local function page_to(taker, chosen, first, last)
  local ids, bases = {}, {}
  for n = first, last do
    ids[#ids + 1] = chosen[n].id
    bases[#bases + 1] = base_of(chosen[n].id)
  end
  local bodies = redis.call('HMGET', MSG, unpack(bases))
  local states = redis.call('HMGET', HELD, unpack(ids))
  local gone, leases, holders, groups = {}, {}, {}, {}
  for n, id in ipairs(ids) do
    local one, body, state = chosen[first + n - 1], bodies[n], states[n]
    local _, _, _, visibility, ack = struct.unpack('>dddI4I4', body)
    local deliveries = (state and struct.unpack('>H', state) or 0) + 1
    local number = counts[DELIVERIES] + 1
    local limit = now + ack
    local ends = math.min(limit, now + (taker.visibility > 0 and taker.visibility or visibility))
    gone[n] = one.member
    leases[2 * n - 1], leases[2 * n] = ends, id
    holders[2 * n - 1] = id
    holders[2 * n] = struct.pack(STATE, deliveries, one.many, number, now, limit, one.order) .. ('1'):rep(one.many) ..
      taker.name
    if fifo then
      groups[2 * n - 1], groups[2 * n] = one.lane, id
    end
    dirty[one.lane] = true
    expect(ends)
    count(DELIVERIES, one.many)
    count(RECEIVED, one.many)
    count(LEASES, one.many)
    local at = #out
    out[at + 1], out[at + 2], out[at + 3], out[at + 4] = taker.number, id, deliveries, number
    out[at + 5], out[at + 6], out[at + 7] = ends, limit, body
    bytes = bytes + #body
    taker.left = taker.left - one.many
  end
  redis.call('ZREM', READY, unpack(gone))
  redis.call('ZADD', LEASED, unpack(leases))
  redis.call('HSET', HELD, unpack(holders))
  if fifo then
    redis.call('HSET', GROUPS, unpack(groups))
  end
end

-- Whether it got as many as it may have.
local function hand_to(taker, most)
  local chosen, found = choose(taker.name, taker.patterns, most)
  if found > most then
    local last = chosen[#chosen]
    cut(last, last.many - (found - most))
  end
  local first = 1
  while first <= #chosen and bytes <= BYTES_MAX do
    local last = math.min(first + PARCELS - 1, #chosen)
    page_to(taker, chosen, first, last)
    first = last + 1
  end
  close(true)
  return found >= most
end

local waiting = counts[HERE] - counts[LEASES] - (fifo and 0 or counts[DELAYS])
local share = #takers == 1 and math.huge or math.max(1, floor(waiting / #takers))
local eager = {}
for _, taker in ipairs(takers) do
  if hand_to(taker, math.min(taker.left, share)) and taker.left > 0 then
    eager[#eager + 1] = taker
  end
end
for _, taker in ipairs(eager) do
  hand_to(taker, taker.left)
end
finally(true)
out[2] = bytes > BYTES_MAX and now or counts[SOONEST]
return out
