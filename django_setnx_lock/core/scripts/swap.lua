-- Put a token in the place of the one by which the lock is held: one that the caller chose, or that
-- of another process which takes the lock over.
-- KEYS  1 name  2 waiters  3 alive  4 gone (the old token's)  5 gone (the new one's)  6 meta
-- ARGV  1 the old token  2 the new one  3 fence of the lock  4 the holder record of who takes it over, or ''
-- Reply {'OK'}
--       {'LOST', how it was lost (JSON) or false}
--- prelude
local value = token_at(KEYS[1])
local fence, _, holder = read_meta(redis.call('GET', KEYS[6]))
if value == ARGV[2] and fence == tonumber(ARGV[3]) then
  -- A copy of a request that was carried out: another lock by this token has another fence.
  return {'OK'}
end
if value ~= ARGV[1] then
  return {'LOST', redis.call('GET', KEYS[4])}
end
local record = ARGV[4] ~= '' and ARGV[4] or holder or ''
-- What is remembered of an earlier use of the new one says nothing of this one.
redis.call('DEL', KEYS[5])
-- A copy of the acquire that is still on the wire must not take the lock once it is free.
redis.call('SET', KEYS[4], 'left', 'PX', MEMORY)
redis.call('SET', KEYS[6], table.concat({ARGV[3], #ARGV[2], ARGV[2], record}, ' '), 'KEEPTTL')
grow(KEYS[6], redis.call('PTTL', KEYS[1]) + META_MARGIN)
redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
return {'OK'}
