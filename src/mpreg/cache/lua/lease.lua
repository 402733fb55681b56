-- Reads a value for someone who will compute it if it is not there, or no longer fresh.
-- ARGV: for how long nobody else is to compute it, ms
-- Returns {state, now, record or '', lease, lease_until}, state: 0 fresh, 1 stale and the lease is yours, 2 stale and
--   someone computes, 3 nothing and the lease is yours, 4 nothing and someone computes; {-2} a structure
local r, structure = read()
if structure then
  return {WRONG_TYPE}
end
local there = r and r.kind == 'E'
if there and (r.fresh == 0 or now < r.fresh) then
  return {0, now, r.data}
end
if r and r.lease > 0 and now < r.lease_until then
  return {there and 2 or 4, now, there and r.data or '', 0, r.lease_until}
end
local duration = tonumber(ARGV[1])
local lease = math.max(now_us, r and r.version + 1 or 0, r and r.lease + 1 or 0)
if there then
  redis.call('SETRANGE', KEY, AT_LEASE, struct.pack('>dd', lease, now + duration))
  return {1, now, r.data, string.format('%.0f', lease), now + duration}
end
local expires = math.max(now + duration, r and r.expires or 0)
write(nil, {
  kind = 'T', version = r and r.version or 0, expires = expires, lease = lease, lease_until = now + duration,
}, '', '')
return {3, now, '', string.format('%.0f', lease), now + duration}
