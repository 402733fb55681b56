-- Which messages come next for a subscriber, in order. Nothing is changed here.
local LANES_MAX = 4096 -- of other topics that are looked at on the way to a matching one
local PAGE = 64 -- of a lane, read at a time

local copies_wait = redis.call('ZRANGEBYLEX', READY, '[\1', '(\2', 'LIMIT', 0, 1)[1] -- of whatever broadcast

-- Lanes as {name, order, members = as far as read, at = which is next}.
local function lanes_for(subscriber, patterns, most)
  local lanes = {}
  local own = copies_wait and subscriber ~= '' and '\1' .. subscriber
  local order = own and open_head(own)
  if order then
    lanes[1] = {name = own, order = order}
  end
  if not patterns then
    local active = redis.call('ZRANGE', ACTIVE, 0, most, 'WITHSCORES')
    for n = 1, #active, 2 do
      lanes[#lanes + 1] = {name = active[n], order = tonumber(active[n + 1])}
    end
    return lanes
  end
  local from, page = 0, 128
  while #lanes <= most + 1 and from < LANES_MAX do
    local active = redis.call('ZRANGE', ACTIVE, from, from + page - 1, 'WITHSCORES')
    for n = 1, #active, 2 do
      local topic = active[n]
      if fifo then
        local _, id = read_member(active[n], first_of(active[n]))
        topic = select(9, struct.unpack(HEADER, redis.call('HGET', MSG, base_of(id))))
      end
      if seldom().any_match(patterns, topic) then
        lanes[#lanes + 1] = {name = active[n], order = tonumber(active[n + 1])}
      end
    end
    if #active < 2 * page then
      break
    end
    from = from + page
  end
  return lanes
end

-- What comes first in a lane, as {lane, order, id, many, member}; nil if nothing is left of it.
local function next_in(lane)
  if not lane.members or lane.at > #lane.members and #lane.members == PAGE then
    local from = lane.members and '(' .. lane.members[PAGE] or '[' .. lane.name .. '\0'
    lane.members = redis.call('ZRANGEBYLEX', READY, from, '(' .. lane.name .. '\1', 'LIMIT', 0, fifo and 1 or PAGE)
    lane.at = 1
  end
  local member = lane.members[lane.at]
  if not member then
    return nil
  end
  local order, id, many = read_member(lane.name, member)
  return {lane = lane.name, order = order, id = id, many = many, member = member}
end

-- Up to `most` messages, as parcels; the last one may hold more than are wanted.
local function choose(subscriber, patterns, most)
  local lanes, chosen, found = lanes_for(subscriber, patterns, most), {}, 0
  while found < most and #lanes > 0 do
    local best = 1
    for n = 2, #lanes do
      if lanes[n].order < lanes[best].order then
        best = n
      end
    end
    local lane, alone = lanes[best], #lanes == 1
    local one = assert(next_in(lane), 'an active lane is empty')
    repeat
      chosen[#chosen + 1] = one
      found = found + one.many
      lane.at = lane.at + 1
      one = next_in(lane)
      lane.order = one and one.order
    until not one or not alone or found >= most
    if not one then
      table.remove(lanes, best)
    end
  end
  return chosen
end
