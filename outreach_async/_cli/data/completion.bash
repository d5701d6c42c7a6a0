%(complete_func)s() {
    local IFS=$'\n'
    local response completion type value word="${COMP_WORDS[COMP_CWORD]}"

    response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD %(complete_var)s=bash_complete "$1")

    while IFS= read -r completion; do
        type=${completion%%%%,*}
        value=${completion#*,}
        if [[ $type == dir ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == file ]]; then
            COMPREPLY=()
            compopt -o default
        elif [[ $type == plain ]]; then
            if [[ $word == \"* ]]; then
                value=${value//\\/\\\\}
                value=${value//\"/\\\"}
                value=${value//\$/\\\$}
                value=${value//\`/\\\`}
            elif [[ $word == \'* ]]; then
                value=${value//\'/\'\\\'\'}
            else
                printf -v value %%q "$value"
            fi
            COMPREPLY+=("$value")
        fi
    done <<< "$response"

    return 0
}

%(complete_func)s_setup() {
    complete -o nosort -F %(complete_func)s %(prog_name)s
}

%(complete_func)s_setup;
