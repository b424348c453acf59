-- Put where a script adds to a lease: what is asked for twice is added once.
local REMEMBERED = 8 -- how many of the last additions to one lease are known
local KNOWN = 'known'

-- What ends in that holder record, with an addition ('add ID') noted at the head of the record, which stays
-- JSON: '{"added":"ID EARLIER-ID ...","host":...}'. KNOWN when it is noted there already.
local function note(addition, value, record)
  local id = string.sub(addition, 5)
  local noted, rest = string.match(record, '^{"added":"([^"]*)"(.*)$')
  if not noted then
    noted, rest = '', string.match(record, '^{(".*)$')
    rest = rest and ',' .. rest or '}'
  end
  if string.find(noted, id, 1, true) then
    return KNOWN
  end
  noted = string.sub(id .. ' ' .. noted, 1, REMEMBERED * (#id + 1))
  return string.sub(value, 1, -#record - 1) .. '{"added":"' .. noted .. '"' .. rest
end
