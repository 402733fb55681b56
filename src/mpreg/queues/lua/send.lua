-- Takes messages in. Each is answered for itself; one that is refused leaves nothing behind.
-- KEYS from 25 (or 13 without dead letters): deduplication keys   ARGV: time, place of the first of them, whether the
-- caller took the queue for one that deduplicates, then pairs:
--   guarantee (0 at least once, 1 broadcast, 2 quorum), priority, delay, TTL (-1: the queue's, 0: none), visibility and
--   ack timeout (0: the queue's), retries (-1: the queue's), required, which deduplication key (0: none), group, topic,
--   and the rest of the header, which is nobody's business here; then payloads as they stand in a body: several only
--   for at least once, without deduplication
-- Returns {now, prefix of ids, answer…}: the id (of several, the first), `F` and how many of several were taken in and the
-- first id, as the queue is full; `F` alone; a list of id and subscribers; `D` and the id of the first one; `Q` and how many
-- there are who could acknowledge. Or -1 if there is no such queue, -2 if the caller was wrong about deduplication.
if not TYPE then
  return -1
end
if ARGV[3] ~= settings[5] then
  return -2
end
settle()
local defaults = redis.call('HMGET', CFG, 'visibility_ms', 'ack_ms', 'retries', 'ttl_ms', 'window_ms')
local max_size = tonumber(settings[4])
local first_key = tonumber(ARGV[2])
local bodies, ready, expiring, answers = {}, {}, {}, {now, PREFIX}

-- It waits from now on. `each` is its id, or that of a copy of it.
local function wait(each, lane, due, expires, priority, many)
  local place = lane_of(each, lane)
  if expires > 0 then
    expiring[#expiring + 1], expiring[#expiring + 2] = expires, each
    expect(expires)
  end
  if due > now then
    delay(each, due, many)
  end
  if fifo or due <= now then
    ready[#ready + 1], ready[#ready + 2] = 0, member_of(place, order_of(each, due, priority), each, many)
    dirty[place] = true
  end
end

for n = 4, #ARGV, 2 do
  local guarantee, priority, delay, ttl, visibility, ack, retries, required, dedup, group, topic, rest =
    struct.unpack('>BhddddhHHHc0Hc0I4c0', ARGV[n])
  local payloads, many = ARGV[n + 1], struct.unpack('>H', ARGV[n + 1])
  local key = dedup > 0 and KEYS[first_key + dedup - 1]
  local first = key and redis.call('GET', key)
  if first and first:sub(1, -11) ~= PREFIX then
    first = false -- of a queue of this name that was deleted
  end
  local copies = guarantee > 0 and seldom().subscribed_to(topic)
  local units = copies and #copies or many
  local room = max_size - counts[HERE]
  required = (guarantee == 2 and required == 0) and floor(units / 2) + 1 or required
  if first then
    answers[#answers + 1] = 'D' .. first:sub(-10)
  elseif guarantee == 2 and required > units then
    answers[#answers + 1] = 'Q' .. units
  elseif units > room and (copies or room <= 0) then
    answers[#answers + 1] = 'F'
  else
    local number = counts[SEQ] + 1
    local id = id_of(number)
    visibility = visibility > 0 and visibility or tonumber(defaults[1])
    ack = ack > 0 and ack or tonumber(defaults[2])
    retries = retries >= 0 and retries or tonumber(defaults[3])
    ttl = ttl >= 0 and ttl or tonumber(defaults[4])
    local expires, due = ttl > 0 and now + ttl or 0, now + delay
    if copies and (expires == 0 or expires > due + ack) then
      expires = due + ack -- a subscriber that is gone holds up a broadcast no longer than this
    end
    local lane = fifo and group or topic
    local header = struct.pack(HEADER, expires, due, now, visibility, ack, retries, priority, #lane, lane, #topic, topic,
      #rest, rest)
    if copies then
      if units > 0 then
        bodies[#bodies + 1], bodies[#bodies + 2] = id, header .. payloads
        redis.call('HSET', CASTS, id, cmsgpack.pack({
          guarantee = guarantee, required = required, subscribers = copies, acknowledged = {}, failed = {},
        }))
      end
      for _, name in ipairs(copies) do
        wait(id .. '@' .. name, lane, due, expires, priority, 1)
      end
      answers[#answers + 1] = {id, unpack(copies)}
    else
      local asked = many
      many = math.min(asked, room)
      units = many
      answers[#answers + 1] = many < asked and 'F' .. format('%04x', many) .. id or id
      local _, part
      if many < asked or fifo and many > 1 then
        _, _, part = seldom().open(header .. payloads)
      end
      local each_alone = fifo and many > 1
      for k = 1, each_alone and many or 1 do
        local each = id_of(number + k - 1)
        local some = part and part(k, each_alone and k or many) or payloads
        bodies[#bodies + 1], bodies[#bodies + 2] = each, header .. some
        wait(each, lane, due, expires, priority, each_alone and 1 or many)
      end
    end
    if key then
      redis.call('SET', key, PREFIX .. id, 'PX', defaults[5])
    end
    count(SEQ, many)
    count(SENT, many)
    count(UNITS, units)
    count(HERE, units)
  end
end

write('HSET', MSG, bodies)
write('ZADD', READY, ready)
write('ZADD', EXPIRY, expiring)
finally()
return answers
