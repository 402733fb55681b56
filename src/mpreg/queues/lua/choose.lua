-- Which messages come next for a subscriber, in order. Nothing is changed here.
local LANES_MAX = 4096 -- of other topics that are looked at on the way to a matching one

-- Lanes as {name, order, members = as far as read, at = which is next}.
local function lanes_for(subscriber, patterns, most)
  local lanes = {}
  local own = subscriber ~= '' and '\1' .. subscriber
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
        local _, id = read_member(active[n], first_of(active[n], 1)[1])
        topic = select(9, struct.unpack(HEADER, redis.call('HGET', MSG, base_of(id))))
      end
      if any_match(patterns, topic) then
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

-- Up to `most` of them as {lane, id, order, member}.
local function choose(subscriber, patterns, most)
  local lanes, chosen = lanes_for(subscriber, patterns, most), {}
  while #chosen < most and #lanes > 0 do
    local best = 1
    for n = 2, #lanes do
      if lanes[n].order < lanes[best].order then
        best = n
      end
    end
    local lane = lanes[best]
    if not lane.members then
      lane.members, lane.at = first_of(lane.name, fifo and 1 or most - #chosen), 1
      lane.order, lane.id = read_member(lane.name, assert(lane.members[1], 'an active lane is empty'))
    end
    local alone = #lanes == 1
    repeat
      local at = lane.at
      chosen[#chosen + 1] = {lane = lane.name, id = lane.id, order = lane.order, member = lane.members[at]}
      lane.at = at + 1
      local following = lane.members[at + 1]
      if following then
        lane.order, lane.id = read_member(lane.name, following)
      else
        table.remove(lanes, best)
      end
    until not following or not alone or #chosen == most
  end
  return chosen
end
