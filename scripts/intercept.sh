#!/usr/bin/env bash
# Redirects the outgoing TCP connections of applications on this host, or in this
# network namespace, to a Remora listener with "transparent: true", and takes
# that back. How to use it: docs/interception.md.
#
#   intercept.sh install --proxy-uid USER [OPTION...]
#   intercept.sh remove
#
#   --proxy-uid USER       whom Remora runs as, name or number; never redirected,
#                          or Remora's own connections would come back to it
#   --port PORT            of the listener, on 127.0.0.1 and ::1; default 15001
#   --uid USER             redirect what this user's processes connect to; may be
#                          given more than once; default: everybody's
#   --ports LIST           redirect connections to these ports only: 80,8000-8100
#   --exclude-ports LIST   leave connections to these ports alone
#   --exclude CIDR         leave connections to these addresses alone; may be
#                          given more than once
#   --no-ipv6              leave IPv6 alone, where the kernel has none
#
# What stays on this host is never redirected. Both commands may be repeated: an
# install takes the place of the one before, or fails and leaves that as it was. Open
# connections stay as they are.
set -euo pipefail

readonly chain=REMORA_OUTPUT
program=$(basename "$0")

die() {
	printf '%s: %s\n' "$program" "$*" >&2
	exit 1
}

usage() {
	sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
	exit 2
}

# uid_of USER prints the number of a user.
uid_of() {
	if [[ $1 =~ ^[0-9]{1,10}$ ]]; then
		echo $((10#$1)) # without zeros before it, which iptables would read as octal
	else
		id -u -- "$1" 2>/dev/null || die "there is no user $1"
	fi
}

# check_port PORT
check_port() {
	[[ $1 =~ ^[0-9]{1,5}$ ]] && ((10#$1 >= 1 && 10#$1 <= 65535)) || die "not a port from 1 to 65535: $1"
}

# ports_of LIST prints each item of a list of ports as iptables has it.
ports_of() {
	local item
	[[ $1 =~ ^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$ ]] || die "not a list of ports: $1"
	for item in ${1//,/ }; do
		check_port "${item%%-*}"
		check_port "${item##*-}"
		echo "${item/-/:}"
	done
}

# usable TOOL dies if TOOL can not work on the nat table.
usable() {
	local said
	command -v "$1" >/dev/null || die "$1 is not installed (Debian: apt-get install iptables)"
	command -v "$1-restore" >/dev/null || die "$1-restore is not installed (Debian: apt-get install iptables)"
	said=$("$1" -w -t nat -S OUTPUT 2>&1 >/dev/null) ||
		die "$1 can't use the nat table; root or CAP_NET_ADMIN in this network namespace is needed: $said"
}

# check_address CIDR
check_address() {
	[[ $1 =~ ^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$ ]] || die "not an address or CIDR: $1"
}

# tool_of CIDR names the tool for the kind of an address.
tool_of() {
	if [[ $1 == *:* ]]; then echo ip6tables; else echo iptables; fi
}

# rules TOOL prints the chain for TOOL as iptables-restore reads it.
rules() {
	local address uid port owner
	echo '*nat'
	echo ":$chain - [0:0]" # new, or emptied
	echo "-A $chain -m owner --uid-owner $proxy_uid -j RETURN"
	echo "-A $chain -o lo -j RETURN"
	for address in "${exclude[@]}"; do
		if [[ $1 == "$(tool_of "$address")" ]]; then echo "-A $chain -d $address -j RETURN"; fi
	done
	for port in $exclude_ports; do
		echo "-A $chain -p tcp --dport $port -j RETURN"
	done
	for uid in "${uids[@]}"; do
		owner=
		if [[ $uid != all ]]; then owner="-m owner --uid-owner $uid"; fi
		for port in $ports; do
			echo "-A $chain $owner -p tcp --dport $port -j REDIRECT --to-ports $to"
		done
	done
	echo COMMIT
}

# restore TOOL ARG... has TOOL read the rules.
restore() {
	local said
	said=$(rules "$1" | "$1-restore" -w --noflush "${@:2}" 2>&1) || die "$1-restore: $said"
}

# put TOOL makes the chain and has OUTPUT come by it.
put() {
	restore "$1"
	if ! "$1" -w -t nat -C OUTPUT -p tcp -j "$chain" 2>/dev/null; then
		"$1" -w -t nat -A OUTPUT -p tcp -j "$chain"
	fi
}

# drop TOOL takes the chain out, if it is there.
drop() {
	while "$1" -w -t nat -C OUTPUT -p tcp -j "$chain" 2>/dev/null; do
		"$1" -w -t nat -D OUTPUT -p tcp -j "$chain"
	done
	if "$1" -w -t nat -S "$chain" >/dev/null 2>&1; then
		"$1" -w -t nat -F "$chain"
		"$1" -w -t nat -X "$chain"
	fi
}

# has_ipv6 reports whether there may be rules for IPv6.
has_ipv6() { command -v ip6tables >/dev/null && ip6tables -w -t nat -S OUTPUT >/dev/null 2>&1; }

# saved TOOL prints the present chain as iptables-restore reads it, or nothing if there is none.
saved() {
	local present
	if present=$("$1" -w -t nat -S "$chain" 2>/dev/null); then
		printf '*nat\n:%s - [0:0]\n%s\nCOMMIT\n' "$chain" "$(sed '/^-N/d' <<<"$present")"
	fi
}

# put_back TOOL restores the chain of before, or drops the new one if there was none.
put_back() {
	if [[ -n ${before[$1]} ]]; then
		"$1-restore" -w --noflush <<<"${before[$1]}"
	else
		drop "$1"
	fi
}

install() {
	local value
	declare -gA before
	tools=(iptables ip6tables)
	proxy_uid='' to=15001 ports=1:65535 exclude_ports='' uids=() exclude=()
	while (($# > 0)); do
		case $1 in
		--no-ipv6)
			tools=(iptables)
			shift
			continue
			;;
		--proxy-uid | --port | --uid | --ports | --exclude-ports | --exclude) (($# > 1)) || die "$1 needs a value" ;;
		*) usage ;;
		esac
		case $1 in
		--proxy-uid) proxy_uid=$(uid_of "$2") ;;
		--port)
			check_port "$2"
			to=$2
			;;
		--uid)
			value=$(uid_of "$2")
			uids+=("$value")
			;;
		--ports) ports=$(ports_of "$2") ;;
		--exclude-ports) exclude_ports=$(ports_of "$2") ;;
		--exclude)
			check_address "$2"
			exclude+=("$2")
			;;
		esac
		shift 2
	done
	[[ -n $proxy_uid ]] || die "--proxy-uid is missing: without it Remora's own connections would come back to it"
	[[ " ${uids[*]} " != *" $proxy_uid "* ]] || die "--uid $proxy_uid is whom Remora runs as; its applications need another user"
	((${#uids[@]} > 0)) || uids=(all)
	for tool in "${tools[@]}"; do
		usable "$tool"
		restore "$tool" --test
	done
	for tool in "${tools[@]}"; do before[$tool]=$(saved "$tool"); done
	trap 'for tool in "${tools[@]}"; do put_back "$tool" || true; done' EXIT # half of it is worse than what was
	for tool in "${tools[@]}"; do put "$tool"; done
	trap - EXIT
	if [[ " ${tools[*]} " != *" ip6tables "* ]] && has_ipv6; then drop ip6tables; fi # of an earlier install
}

remove() {
	(($# == 0)) || usage
	local tool
	usable iptables
	drop iptables
	if has_ipv6; then drop ip6tables; fi
}

case ${1:-} in
install | remove) "$@" ;;
*) usage ;;
esac
