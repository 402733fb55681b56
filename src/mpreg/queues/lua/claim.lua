-- Hands out messages, each with a lease.
-- ARGV: time, subscriber, how many, visibility in ms (0: each message's own), then its patterns (none: every topic)
-- Returns {now, when to ask again (0: not before something is sent), then for each: id, deliveries, number of this one,
-- end of the lease, until when it can be extended, the message}, or -1 if there is no such queue.
if not TYPE then
  return -1
end
settle()
close() -- lanes must be right before one is chosen
local subscriber, visibility_asked = ARGV[2], tonumber(ARGV[4])
local patterns
for n = 5, #ARGV do
  patterns = patterns or {}
  patterns[#patterns + 1] = split(ARGV[n])
end
local chosen = choose(subscriber, patterns, tonumber(ARGV[3]))
local out, gone, leases, holders, groups = {now, 0}, {}, {}, {}, {}
local delivery = tonumber(settings[4] or 0)
for n, one in ipairs(chosen) do
  local id = one.id
  local body = redis.call('HGET', MSG, base_of(id))
  local state = redis.call('HGET', HELD, id)
  local _, _, visibility, ack = struct.unpack('>ddI4I4', body)
  local deliveries = state and struct.unpack('>H', state) or 0
  delivery = delivery + 1
  local limit = now + ack
  local ends = math.min(limit, now + (visibility_asked > 0 and visibility_asked or visibility))
  gone[n] = one.member
  leases[2 * n - 1], leases[2 * n] = ends, id
  holders[2 * n - 1] = id
  holders[2 * n] = struct.pack(STATE, deliveries + 1, delivery, now, limit, one.order) .. subscriber
  if fifo then
    groups[2 * n - 1], groups[2 * n] = one.lane, id
  end
  dirty[one.lane] = true
  local at = #out
  out[at + 1], out[at + 2], out[at + 3], out[at + 4], out[at + 5], out[at + 6] =
    id, deliveries + 1, delivery, ends, limit, body
end
if #chosen > 0 then
  redis.call('ZREM', READY, unpack(gone))
  redis.call('ZADD', LEASED, unpack(leases))
  redis.call('HSET', HELD, unpack(holders))
  if fifo then
    redis.call('HSET', GROUPS, unpack(groups))
  end
  redis.call('HSET', CFG, 'deliveries', delivery)
  count('received', #chosen)
end
close(true)
out[2] = next_at()
return out
