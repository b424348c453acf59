-- Ask those holders whom the operator saw to stop, and nobody else. They keep their shares.
-- ARGV  1 ID of the request, who and why (JSON)  2... tokens seen
-- Reply {'OK'}  {'BEFORE'} each of them was asked before  {'CHANGED'} none of them has it  {'FREE'} nobody has it
--- shared_keys
--- prelude
--- shared
--- stopping
--- requesting
local value, group = standing(token_at(NAME))
if not value then
  return {'FREE'}
end
local answer = 'CHANGED'
for number = 2, #ARGV do
  local token = ARGV[number]
  local known = group and redis.call('ZSCORE', SHARES, token) and redis.call('HGET', HOLDERS, token)
  local record = known and string.match(known, '^%d+ (.*)$')
  if record then
    local noted = note_stop(known, record, ARGV[1])
    if noted ~= NOTED_BEFORE then
      answer = 'OK'
      if noted ~= NOTED then
        redis.call('HSET', HOLDERS, token, noted)
      end
    elseif answer ~= 'OK' then
      answer = 'BEFORE'
    end
  end
end
return {answer}
